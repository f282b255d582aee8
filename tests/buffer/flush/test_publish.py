"""Settling: in one transaction, by whoever holds the batch, and again when the database was in the way."""

from datetime import timedelta

import pytest
from django.db import OperationalError

from buffer.events.models import Batch, BufferedEvent
from buffer.flush import flusher as publishing
from buffer.flush.claim import claim
from buffer.flush.flusher import lease_unsent, publish
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Failed, Refused
from outbox.bookkeeping import counters
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order
from tests.row_locks import locks_asked_for

pytestmark = pytest.mark.django_db
STREAM = "transfer-requests"


@pytest.fixture
def claimed(ingest, records, stream):
    """A batch of two orders, leased."""
    ingest(records(order("A1"), order("A2")))
    urge()
    return claim(stream)


def sent() -> tuple[int, int]:
    totals = counters.totals(STREAM)
    return totals.get("batches_sent", 0), totals.get("events_sent", 0)


def expire() -> None:
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))


def fail_first(monkeypatch, module, name, error) -> None:
    usual, errors = getattr(module, name), [error]

    def run(*given):
        if errors:
            raise errors.pop()
        return usual(*given)

    monkeypatch.setattr(module, name, run)


def test_what_was_sent_is_counted_in_the_transaction_that_settles_it(claimed, stream, producer, monkeypatch):
    with monkeypatch.context() as patched:
        fail_first(patched, counters, "add", RuntimeError("power cut"))
        with pytest.raises(RuntimeError):
            publish(claimed.batches, claimed.token, producer)
    assert (Batch.objects.get().status, sent()) == ("claimed", (0, 0))
    expire()
    token, batches = lease_unsent([stream])
    publish(batches, token, producer)
    assert (Batch.objects.get().status, sent()) == ("sent", (1, 2))


def test_a_deadlock_is_settled_again_and_counted_once(claimed, producer, monkeypatch):
    fail_first(monkeypatch, counters, "add", OperationalError("database is locked"))
    assert publish(claimed.batches, claimed.token, producer)
    assert (Batch.objects.get().status, sent(), len(producer.sent)) == ("sent", (1, 2), 1)


def test_a_zombie_does_not_settle_what_its_heir_still_holds(claimed, stream, producer):
    expire()
    with locks_asked_for() as locks:
        heir, batches = lease_unsent([stream])
        publish(claimed.batches, claimed.token, producer)  # the zombie wakes up first
    batch = Batch.objects.get()
    assert (batch.status, batch.lease_token, sent()) == ("claimed", heir, (0, 0))
    assert locks == ["buffer_batch?", "buffer_batch"]
    publish(batches, heir, producer)
    assert (Batch.objects.get().status, sent()) == ("sent", (1, 2))


def test_a_supplement_counts_as_a_batch_and_not_as_orders(claimed, ingest, records, stream, producer):
    publish(claimed.batches, claimed.token, producer)
    ingest(records(order("A1", items={"S1": 5})))
    pull("requeue", [DeadLetter.objects.get().pk], Operator("test"), "x")
    token, batches = lease_unsent([stream])
    publish(batches, token, producer)
    assert sent() == (2, 2)


def test_a_batch_that_was_closed_meanwhile_is_not_settled(claimed, producer):
    Batch.objects.update(status="discarded")
    publish(claimed.batches, claimed.token, producer)
    assert (Batch.objects.get().status, sent()) == ("discarded", (0, 0))


def test_settling_is_given_up_after_some_deadlocks(claimed, producer, monkeypatch):
    tries = []

    def fail(*given):
        tries.append(given)
        raise OperationalError("database is locked")

    monkeypatch.setattr(publishing, "SETTLE_ATTEMPTS", 3)
    monkeypatch.setattr(counters, "add", fail)
    with pytest.raises(OperationalError):
        publish(claimed.batches, claimed.token, producer)
    assert (len(tries), Batch.objects.get().status) == (3, "claimed")


@pytest.mark.parametrize(("status", "taken"), [("claimed", []), ("parked", [2])])
def test_a_batch_waits_for_an_older_one_of_its_warehouse_unless_that_is_parked(
    claimed, ingest, records, stream, status, taken
):
    ingest(records(order("A3")))
    urge()
    assert claim(stream).batches == []  # it is stored without a lease
    Batch.objects.filter(sequence=1).update(status=status)
    _token, batches = lease_unsent([stream])
    assert [Batch.objects.get(pk=batch.pk).sequence for batch in batches] == taken


def test_failures_of_a_batch_add_up_and_each_is_followed_by_a_wait(claimed, stream, producer):
    producer.outcomes = [Failed("away"), Failed("still away")]
    assert not publish(claimed.batches, claimed.token, producer)
    for attempts, error in [(1, "away"), (2, "still away")]:
        batch = Batch.objects.get()
        assert (batch.attempts, batch.error, batch.lease_token) == (attempts, error, None)
        assert lease_unsent([stream])[1] == []
        expire()
        token, batches = lease_unsent([stream])
        publish(batches, token, producer)
    assert Batch.objects.get().status == "sent"


def test_a_batch_that_changes_although_it_is_locked_is_neither_settled_nor_counted(claimed, producer, monkeypatch):
    writer = publishing.uuid_writer

    def meanwhile():
        Batch.objects.update(status="parked")
        return writer()

    monkeypatch.setattr(publishing, "uuid_writer", meanwhile)
    with pytest.raises(RuntimeError, match="settled 0 of 1"):
        publish(claimed.batches, claimed.token, producer)
    assert (Batch.objects.get().status, sent()) == ("claimed", (0, 0))


@pytest.mark.parametrize("status", ["claimed", "sent", "discarded"])
def test_a_batch_that_is_no_longer_parked_is_neither_freed_nor_discarded(claimed, producer, status):
    producer.outcomes = [Refused("too large")]
    publish(claimed.batches, claimed.token, producer)
    Batch.objects.parked().update(status=status)
    before, letter = Batch.objects.values().get(), DeadLetter.objects.get()
    with locks_asked_for() as locks:
        for verb in ("requeue", "discard"):
            [(_, why)] = pull(verb, [letter.pk], Operator("test"), "x").refused
            assert why == "the batch is no longer parked"
    assert (Batch.objects.values().get(), DeadLetter.objects.get().status) == (before, "open")
    assert BufferedEvent.objects.filter(status__stored="claimed").exists()
    assert locks[-2:] == ["outbox_deadletter", "buffer_batch"]


def test_a_batch_that_is_no_longer_discarded_is_not_parked_again(claimed, producer):
    producer.outcomes = [Refused("too large")]
    publish(claimed.batches, claimed.token, producer)
    letter = DeadLetter.objects.get()
    assert pull("discard", [letter.pk], Operator("test"), "x").acted == 1
    Batch.objects.update(status="sent")
    [(_, why)] = pull("restore", [letter.pk], Operator("test"), "x").refused
    assert why == "its batch is not kept any more, or was not discarded"
    assert (Batch.objects.get().status, DeadLetter.objects.get().status) == ("sent", "discarded")
