"""What the page of a letter foretells is what requeueing does: the flow judges, and judging writes nothing."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from buffer.events.models import Batch, BufferedEvent
from config.admin.levers import Operator
from config.fields import uuid7
from config.telemetry.redaction import masked_error
from outbox.letters.levers import forecast, pull
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import flush, page_of
from tests.conftest import order

pytestmark = pytest.mark.django_db
ANN = Operator("ann")
READ = ("SELECT", "SAVEPOINT", "RELEASE SAVEPOINT")  # a letter that breaks its flow must not spoil the transaction


def foretold(letter):
    with CaptureQueriesContext(connection) as asked:
        found = forecast(letter)
    assert all(entry["sql"].lstrip().upper().startswith(READ) for entry in asked)
    return found


def test_a_late_order_sends_a_supplement(rows):
    said = foretold(rows.late)
    assert (said.tone, said.verdict) == ("ok", "Sends a supplement.")
    assert said.why == "The difference to what was sent: 1 SKU."
    assert pull("requeue", [rows.late.pk], ANN, "w").acted == 1
    assert Batch.objects.filter(reason="supplement").exists()


def test_a_late_order_whose_batch_is_not_sent_yet_is_refused(rows):
    Batch.objects.filter(pk=rows.done.batch_id).update(status="claimed")
    said = foretold(rows.late)
    assert said.verdict == "It would be refused now."
    assert "not sent yet" in said.why
    [(_, why)] = pull("requeue", [rows.late.pk], ANN, "w").refused
    assert why in said.why.lower()


def test_a_letter_that_is_older_than_what_was_taken_changes_nothing(rows):
    BufferedEvent.objects.filter(pk=rows.done.pk).update(source_offset=10**9, source_timestamp=2**61)
    assert foretold(rows.late).verdict == "Changes nothing."
    pull("requeue", [rows.late.pk], ANN, "w")
    assert "nothing to do" in DeadLetter.objects.get(pk=rows.late.pk).note


@pytest.mark.parametrize(("status", "note"), [("pending", "was replaced"), ("discarded", "waits for a batch again")])
def test_an_order_that_was_never_sent_goes_into_the_next_batch(rows, status, note):
    BufferedEvent.objects.filter(pk=rows.done.pk).update(status=status)
    assert foretold(rows.late).verdict == "The order goes into the next batch."
    pull("requeue", [rows.late.pk], ANN, "w")
    assert note in DeadLetter.objects.get(pk=rows.late.pk).note


def test_the_same_quantities_send_nothing(ingest, records, stream, producer):
    ingest(records(order("A1")))
    flush(stream, producer)
    ingest(records(order("A1", remark="other bytes")))
    assert foretold(DeadLetter.objects.get()).verdict == "Sends nothing."
    pull("requeue", DeadLetter.objects.values_list("pk", flat=True), ANN, "w")
    assert "nothing to send" in DeadLetter.objects.get().note


def test_an_order_whose_month_is_gone_is_refused(rows):
    BufferedEvent.objects.filter(pk=rows.done.pk).delete()
    assert "month was dropped" in foretold(rows.late).why


def test_what_cannot_be_read_fails_again(rows):
    said = foretold(rows.undecodable)
    assert (said.verdict, said.why) == ("Fails again.", masked_error(rows.undecodable.error))
    pull("requeue", [rows.undecodable.pk], ANN, "w")
    assert DeadLetter.objects.get(pk=rows.undecodable.pk).status == "failed_again"


def test_the_page_of_a_late_order_promises_no_failure(boss, rows):
    html = boss.get(page_of(rows.late)).content.decode()
    assert "Sends a supplement." in html
    assert "May fail again" not in html


def test_a_letter_is_not_the_proof_of_its_own_cause(boss, rows):
    assert "fail again" not in boss.get(page_of(rows.late)).content.decode()
    other = DeadLetter.objects.get(pk=rows.late.pk)
    other.pk, other.created_at = uuid7(), rows.late.created_at + timedelta(seconds=1)
    other.save(force_insert=True)
    assert "Another letter with this cause came" in boss.get(page_of(rows.late)).content.decode()
