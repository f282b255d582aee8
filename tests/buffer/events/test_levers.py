"""Levers and letters: flush now, hold, withdraw, requeue, discard; each once, each audited."""

from datetime import timedelta

import pytest
from django.db import DataError

from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent, EventQuerySet
from buffer.flush.flusher import Flusher
from buffer.order_letters import OrderLetters
from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.groups.models import FailureGroup
from outbox.letters.burial import AlarmedWatermarks
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.row_locks import locks_asked_for

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("everything_adds_up")]
ME = Operator("M. Okafor")


@pytest.fixture
def flusher(stream, producer):
    return Flusher([stream], producer)


@pytest.fixture
def flush(flusher):
    def run() -> None:
        levers.flush_now(list(Bucket.objects.values_list("pk", flat=True)), ME, "test")
        while flusher.tick():
            pass

    return run


def bucket() -> Bucket:
    return Bucket.objects.get(location_id="WH-1")


def test_flush_now(ingest, records, flusher, producer):
    ingest(records(order()))
    assert levers.flush_now([bucket().pk], ME, "the truck is here") == 1
    assert levers.flush_now([bucket().pk], ME, "twice") == 0
    assert flusher.tick() == 1
    assert Batch.objects.get().reason == "manual"
    assert levers.flush_now([bucket().pk], ME, "again") == 0  # empty: nothing to flush
    action = OperatorAction.objects.get()
    assert (action.verb, action.actor_name, action.reason, action.rows) == (
        "flush now",
        "M. Okafor",
        "the truck is here",
        1,
    )


def test_hold_and_release(ingest, records, flusher, producer):
    ingest(records(order()))
    assert levers.hold([bucket().pk], ME, "stocktake") == 1
    assert levers.hold([bucket().pk], ME, "stocktake") == 0
    assert bucket().due_at is None
    assert levers.flush_now([bucket().pk], ME, "x") == 0
    Bucket.objects.update(cap_at=database_now() - timedelta(hours=1))
    assert flusher.tick() == 0
    assert levers.release([bucket().pk], ME, "done") == 1
    assert flusher.tick() == 1


def test_withdraw_takes_only_what_no_batch_has_taken(ingest, records, flush, producer):
    ingest(records(order("A1"), order("A2")))
    first = BufferedEvent.objects.get(order_id="A1")
    with locks_asked_for() as locks:
        assert levers.withdraw([first.pk], ME, "cancelled by phone") == 1
    assert locks == ["buffer_bufferedevent"]
    assert levers.withdraw([first.pk], ME, "twice") == 0
    assert bucket().open_count == 1
    flush()
    assert producer.values[0]["order_ids"] == ["A2"]
    assert levers.withdraw(list(BufferedEvent.objects.values_list("pk", flat=True)), ME, "too late") == 0


def test_an_order_that_changes_although_it_is_locked_is_not_withdrawn(ingest, records, monkeypatch):
    ingest(records(order("A1")))
    in_months = EventQuerySet.in_months

    def meanwhile(rows, months):
        BufferedEvent.objects.update(status="discarded")
        return in_months(rows, months)

    monkeypatch.setattr(EventQuerySet, "in_months", meanwhile)
    with pytest.raises(RuntimeError, match="withdrew 0 of 1"):
        levers.withdraw([BufferedEvent.objects.get().pk], ME, "x")
    assert (BufferedEvent.objects.get().status, bucket().open_count) == ("pending", 1)


def test_withdrawing_the_last_order_empties_the_bucket(ingest, records):
    ingest(records(order("A1")))
    levers.withdraw([BufferedEvent.objects.get().pk], ME, "x")
    assert (bucket().open_count, bucket().due_at) == (0, None)


def letter(reason: str) -> DeadLetter:
    return DeadLetter.objects.get(reason=reason, status="open")


def test_a_late_event_is_sent_as_the_signed_difference(ingest, records, flush, producer):
    ingest(records(order(items={"S1": 5, "S2": 1, "S3": 2})))
    flush()
    original = Batch.objects.get()
    ingest(records(order(items={"S1": 3, "S2": 1, "S4": 7})))
    assert pull("requeue", [letter("late_event").pk], ME, "customer called").acted == 1
    flush()
    message = producer.values[-1]
    assert message["supplement_of"] == str(original.pk)
    assert Batch.objects.get(supplement_of=original.pk).sequence == original.sequence + 1
    assert message["order_ids"] == ["A1"]
    assert {item["sku"]: item["quantity"] for item in message["items"]} == {"S1": -2, "S3": -2, "S4": 7}
    assert message["batch_id"] != str(original.pk)
    group = FailureGroup.objects.get()
    assert group.open_count == 0


def test_a_supplement_waits_for_its_original(ingest, records, stream, producer):
    from buffer.flush.claim import claim

    ingest(records(order()))
    levers.flush_now([bucket().pk], ME, "x")
    claim(stream)  # cut, not sent
    ingest(records(order(items={"S1": 9})))
    result = pull("requeue", [letter("late_event").pk], ME, "x")
    assert result.acted == 0
    assert "not sent yet" in result.refused[0][1]
    assert DeadLetter.objects.get().status == "open"


def test_a_late_event_reopens_a_withdrawn_order(ingest, records, flush, producer):
    ingest(records(order()))
    levers.withdraw([BufferedEvent.objects.get().pk], ME, "mistake")
    ingest(records(order(items={"S1": 4})))
    pull("requeue", [letter("late_event").pk], ME, "wanted after all")
    flush()
    assert producer.values[0]["items"] == [{"sku": "S1", "quantity": 4}]


def test_poison_that_is_requeued_comes_back_as_a_new_letter(ingest, records):
    ingest(records(b"{bad"))
    first = letter("invalid_json")
    result = pull("requeue", [first.pk], ME, "try")
    ((failed, effect),) = result.failed
    assert (result.acted, failed.pk) == (0, first.pk)
    first.refresh_from_db()
    again = DeadLetter.objects.open().get()
    assert (first.status, first.successor, again.predecessor) == ("failed_again", again.pk, first.pk)
    assert effect.successor == again.pk
    assert (again.revision, again.position) == (1, first.position)
    assert FailureGroup.objects.get().open_count == 1


def test_what_the_database_still_refuses_hides_nothing_of_the_others(ingest, records, monkeypatch):
    """It was a 500 in the admin, and in the terminal a traceback instead of what had been requeued before."""
    ingest(records(b"{one", b"{two"))
    first, second = DeadLetter.objects.order_by("id")
    usual = OrderLetters.take_back

    def refuse_first(flow, letters, now):
        if first.pk in [letter.pk for letter in letters]:
            raise DataError("value out of range\nDETAIL: Failing row contains (ada@example.com)")
        return usual(flow, letters, now)

    monkeypatch.setattr(OrderLetters, "take_back", refuse_first)
    result = pull("requeue", [first.pk, second.pk], ME, "try")
    assert [row.pk for row, _ in result.failed] == [second.pk]
    assert [(row.pk, why) for row, why in result.refused] == [
        (first.pk, "the database still refuses it: value out of range")
    ]
    first.refresh_from_db()
    assert first.status == "open"


def test_a_stopped_partition_is_a_letter_that_cannot_be_requeued(stream):
    positions = AlarmedWatermarks(stream.name)
    for _ in range(2):
        positions.stop("buffer-ingest", {("transfer-requests", 3): "the topic was created again"}, database_now())
    stopped = letter("partition_stopped")
    assert (stopped.source, stopped.partition) == (stream.name, 3)
    assert pull("requeue", [stopped.pk], ME, "try").refused[0][1].startswith("a stopped partition is no record")
    assert pull("resolve", [stopped.pk], ME, "accepted").acted == 1


def test_a_letter_is_handled_at_its_own_position(ingest, records, settings):
    found = records(order(pad="x" * 70_000))
    ingest(found)
    ingest(records(order(items={"S1": 2})))  # newer, accepted meanwhile
    from buffer.streams import streams

    streams()["transfer-requests"].__dict__.pop("gate", None)
    settings.BUFFER_MAX_EVENT_BYTES = 100_000
    try:
        assert pull("requeue", [letter("too_large").pk], ME, "limit raised").acted == 1
    finally:
        streams()["transfer-requests"].__dict__.pop("gate", None)
    assert BufferedEvent.objects.get().payload == order(items={"S1": 2}).decode()
