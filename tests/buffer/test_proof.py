"""A requeued letter of an order is closed by the batch that was sent with it; a refused batch by its own sending."""

from __future__ import annotations

import pytest
from django.db import DataError, transaction

from buffer.events import levers as buckets
from buffer.events.models import NO_BATCH, Batch, Bucket, BufferedEvent
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Refused
from outbox.letters import levers, redelivery
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup
from tests.conftest import order

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("everything_adds_up")]
ME = Operator("me")


@pytest.fixture
def flush(stream, producer):
    def run() -> None:
        buckets.flush_now(list(Bucket.objects.values_list("pk", flat=True)), ME, "test")
        while Flusher([stream], producer).tick():
            pass

    return run


@pytest.fixture
def letter(ingest, records, settings) -> DeadLetter:
    """Of an order that was outside the window, which is wider by now."""
    settings.BUFFER_RETENTION_MONTHS = 1
    ingest(records(order("A1", at="2026-08-01T10:00:00Z")))
    settings.BUFFER_RETENTION_MONTHS = 13
    return DeadLetter.objects.get(reason="outside_window")


@pytest.fixture
def late(ingest, records, flush) -> DeadLetter:
    ingest(records(order("A1")))
    flush()
    ingest(records(order("A1", items={"S1": 5})))
    return DeadLetter.objects.get(reason="late_event")


@pytest.fixture
def refused(ingest, records, producer, flush) -> DeadLetter:
    """Of a batch that the broker would not take."""
    ingest(records(order("A1")))
    producer.outcomes = [Refused("too large")]
    flush()
    return DeadLetter.objects.get(reason="batch_refused")


def requeue(letter: DeadLetter) -> None:
    result = levers.pull("requeue", [letter.pk], ME, "try")
    assert (result.acted, result.refused) == (1, [])


def look(letter: DeadLetter) -> tuple[str, str]:
    redelivery.look_after(database_now())
    found = DeadLetter.objects.get(pk=letter.pk)
    return found.status, found.evidence


# -- an order that was never stored -------------------------------------------------------------------
def test_without_a_flusher_or_in_a_held_bucket_it_stays_requeued(letter, flush):
    requeue(letter)
    assert look(letter) == ("requeued", "")
    buckets.hold([Bucket.objects.get().pk], ME, "held")
    flush()
    assert look(letter) == ("requeued", "")
    buckets.release([Bucket.objects.get().pk], ME, "released")
    flush()
    batch = Batch.objects.get()
    assert look(letter) == ("resolved", f"batch {batch.pk} was sent: 0/0")
    assert FailureGroup.objects.get().state == "resolved"


def test_a_batch_that_is_cut_proves_nothing(letter, stream):
    from buffer.flush.claim import claim

    requeue(letter)
    buckets.flush_now([Bucket.objects.get().pk], ME, "x")
    claim(stream)
    assert Batch.objects.get().status == "claimed"
    assert look(letter) == ("requeued", "")


def test_a_newer_version_that_is_sent_proves_it(letter, ingest, records, flush):
    requeue(letter)
    ingest(records(order("A1", at="2026-08-01T10:00:00Z", items={"S1": 7})))
    flush()
    assert look(letter)[0] == "resolved"


def test_a_withdrawn_order_closes_it_as_discarded(letter):
    requeue(letter)
    buckets.withdraw([BufferedEvent.objects.get().pk], ME, "x")
    assert look(letter) == ("discarded", "the order was withdrawn")


def test_many_are_taken_back_at_once_and_each_gets_its_own_answer(letter, ingest, records, flush, settings):
    settings.BUFFER_RETENTION_MONTHS = 1
    ingest(records(*[order(f"B{n}", f"WH-{n % 3}", at="2026-08-01T10:00:00Z") for n in range(20)], b"{bad"))
    settings.BUFFER_RETENTION_MONTHS = 13
    opened = list(DeadLetter.objects.open())
    judged = redelivery.judge(opened, database_now())
    assert sorted(found.eligible for found in judged.values()) == [False] + [True] * 21
    found = levers.pull("requeue", [one.pk for one in opened], ME, "all")
    assert (found.acted, len(found.failed)) == (21, 1)
    flush()
    redelivery.look_after(database_now())
    assert sorted(DeadLetter.objects.values_list("status", flat=True)) == ["failed_again", "open"] + ["resolved"] * 21


def test_one_letter_that_the_database_refuses_spares_the_rest_of_its_chunk(letter, ingest, records, monkeypatch):
    from buffer.ingest.handler import Ingest

    letter.delete()
    FailureGroup.objects.update(open_count=0)
    ingest(records(*[b"{%d" % n for n in range(20)]))
    found = list(DeadLetter.objects.open().order_by("offset"))
    for n, one in enumerate(found):
        DeadLetter.objects.filter(pk=one.pk).update(payload=order(f"A{n}"))
    bad, usual, sizes = order("A13"), Ingest.apply, []

    def apply(self, batch, now):
        sizes.append(len(batch.records))
        if bad in [record.value for record in batch.records]:
            raise DataError("value out of range")
        return usual(self, batch, now)

    monkeypatch.setattr(Ingest, "apply", apply)
    with transaction.atomic():
        effects = redelivery.take_back(list(DeadLetter.objects.open()), database_now())
    refused = {pk: effect.evidence for pk, effect in effects.items() if effect.state == "refused"}
    assert refused == {found[13].pk: "the database still refuses it: value out of range"}
    assert len(sizes) <= 11  # by halves: 20, two of 10, two of 5 …
    assert BufferedEvent.objects.pending().count() == 19
    assert DeadLetter.objects.open().get() == found[13]


# -- late orders ---------------------------------------------------------------------------------------


def test_a_late_letter_that_changes_nothing_is_resolved_at_once(late):
    DeadLetter.objects.update(payload=order("A1"))
    requeue(late)
    assert look(late) == ("resolved", "nothing to send: the quantities are those that were sent")


def test_two_late_letters_of_one_order_in_one_chunk_are_sent_in_their_order(late, ingest, records, flush, producer):
    ingest(records(order("A1", items={"S1": 9})))
    both = list(DeadLetter.objects.order_by("-offset"))
    judged = redelivery.judge(both, database_now())
    assert all(found.eligible for found in judged.values())
    with transaction.atomic():
        found = redelivery.take_back(both, database_now())
    assert [effect.state for effect in found.values()] == ["waiting", "waiting"]
    flush()
    redelivery.look_after(database_now())
    sums = [item["quantity"] for value in producer.values for item in value["items"]]
    assert sums == [1, 4, 4]
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"resolved"}


# -- refused batches -----------------------------------------------------------------------------------


def test_parked_again_stays_so_when_the_next_letter_is_sent_before_anybody_looked(refused, producer, flush):
    requeue(refused)
    producer.outcomes = [Refused("still too large")]
    flush()
    after = DeadLetter.objects.open().get()
    requeue(after)
    flush()
    assert look(refused) == ("failed_again", "still too large")
    assert look(after)[0] == "resolved"


def test_a_restored_discard_parks_the_batch_again_with_its_orders(refused, flush):
    levers.pull("discard", [refused.pk], ME, "the warehouse is closed")
    assert (Batch.objects.get().status, BufferedEvent.objects.get().status) == ("discarded", "discarded")
    assert levers.pull("restore", [refused.pk], ME, "it is not").acted == 1
    assert (Batch.objects.get().status, BufferedEvent.objects.get().status) == ("parked", "claimed")
    requeue(DeadLetter.objects.get())
    flush()
    assert look(refused)[0] == "resolved"
    assert BufferedEvent.objects.get().status == "sent"


@pytest.mark.parametrize("again", [False, True])
def test_a_discard_is_not_undone_without_its_orders(refused, ingest, records, again):
    """One was opened again; if it was withdrawn then, it is discarded once more, and no longer with its batch."""
    levers.pull("discard", [refused.pk], ME, "the warehouse is closed")
    ingest(records(order("A1", items={"S1": 5})))
    requeue(DeadLetter.objects.get(reason="late_event"))
    if again:
        buckets.withdraw([BufferedEvent.objects.get().pk], ME, "x")
    outcome = levers.pull("restore", [refused.pk], ME, "it is not")
    assert [why for _letter, why in outcome.refused] == [
        "1 of its 1 orders were opened again, or their month was dropped"
    ]
    assert (Batch.objects.get().status, BufferedEvent.objects.get().batch_id) == ("discarded", NO_BATCH)
