"""The writer: a batch is stored, run again, waited for or bisected, and never skipped."""

import time
from datetime import timedelta

import pytest
from django.db import DataError, OperationalError, connection, transaction

from config.database import retry
from config.database.clock import database_now
from config.kafka.consumer.writer import Handler, LogEndSeen, Writer, Writers
from config.kafka.positions import Passed
from config.kafka.records import RecordBatch, Replayed
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from tests.crash.wire import wait_for
from tests.exported import exported

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = "value out of range\nDETAIL:  Failing row contains (ada@example.com)."


class Scripted(Handler):
    """A handler that remembers what was stored and fails as told."""

    name, group, topics = "scripted", "g", ["t"]

    def __init__(self):
        self.stored, self.parked, self.failures, self.poison, self.repairs = [], [], [], set(), 0
        self.beats = 0

    def prepare(self, batch):
        return [record.offset for record in batch.records]

    def write(self, batch, now):
        if self.failures:
            raise self.failures.pop(0)
        if self.poison & set(batch.prepared):
            raise DataError(REFUSED)
        self.stored += batch.prepared

    def park(self, batch, record, error, trace, now):
        if self.failures:
            raise self.failures.pop(0)
        self.parked.append((record.offset, type(error).__name__, "DataError" in trace and "ada@" not in trace))

    def each_second(self, now):
        assert connection.in_atomic_block
        self.beats += 1

    def pressure(self):
        return True

    def repair(self):
        self.repairs += 1


def caused(code, text="x"):
    error = OperationalError(text)
    error.__cause__ = Exception(code, text)
    return error


@pytest.fixture
def handler():
    return Scripted()


@pytest.fixture
def writer(handler, monkeypatch):
    monkeypatch.setattr(retry, "full_jitter", lambda *_, **__: 0.0)
    found = Writer(handler, Watermarks(), "g")
    yield found
    found.close()


def batch(*offsets):
    return RecordBatch([Replayed("t", 0, offset, 0, None, b"") for offset in offsets], {"t": "id"})


def store(writer, found):
    assert writer.submit(found, 1, timeout=5)
    assert writer.drain(patience=30)


def mark():
    return Watermark.objects.get().next_offset


def test_a_batch_is_stored_with_its_watermark(writer, handler):
    store(writer, batch(1, 2, 3))
    assert (handler.stored, mark()) == ([1, 2, 3], 4)
    assert writer.done.get().ends == {("t", 0): 4}


@pytest.mark.parametrize("code", [1213, 1205])
def test_a_deadlock_is_run_again_from_the_beginning(writer, handler, code):
    before = exported(metrics.RERUN, cause=str(code))
    handler.failures = [caused(code), caused(code)]
    store(writer, batch(1, 2))
    assert handler.stored == [1, 2]
    assert sum(exported(metrics.RERUN, cause=str(code)).values()) == sum(before.values()) + 2


def test_a_database_that_is_away_is_waited_for(writer, handler):
    handler.failures = [caused(2006, "gone away")]
    store(writer, batch(1))
    assert handler.stored == [1]
    assert not writer.waiting


def test_a_database_that_is_away_while_a_record_is_parked_is_waited_for(writer, handler):
    handler.failures = [DataError("bad"), caused(2006, "gone away")]
    store(writer, batch(1))
    assert (handler.parked, writer.waiting) == ([(1, "DataError", True)], None)


def test_what_is_stored_elsewhere_does_not_notice_that_the_database_is_away(writer, handler, monkeypatch):
    def away():
        raise OperationalError("the database is away")

    handler.in_database = False
    handler.failures = [caused(2006, "its own store is away")]
    monkeypatch.setattr(transaction, "atomic", away)
    monkeypatch.setattr("config.kafka.consumer.writer.database_now", away)
    store(writer, batch(1, 2))
    assert (handler.stored, writer.waiting) == ([1, 2], None)


def test_a_missing_partition_is_made(writer, handler):
    handler.failures = [caused(1526, "no partition")]
    store(writer, batch(1))
    assert (handler.stored, handler.repairs) == ([1], 1)


def test_one_bad_row_is_parked_alone(writer, handler):
    handler.poison = {5, 6}
    store(writer, batch(*range(10)))
    assert sorted(handler.stored) == [0, 1, 2, 3, 4, 7, 8, 9]
    assert handler.parked == [(5, "DataError", True), (6, "DataError", True)]
    assert mark() == 10
    assert exported(metrics.BISECTED)["scripted",] >= 3


def test_a_bug_is_bisected_too_and_never_blocks(writer, handler):
    handler.failures = [TypeError("surprise")]
    store(writer, batch(1, 2))
    assert sorted(handler.stored) == [1, 2]


def test_what_cannot_be_parked_is_not_skipped(writer, handler):
    handler.poison = {1}
    original, handler.failures = handler.park, []

    def failing_once(*args):
        handler.park = original
        raise caused(2006, "gone away")

    handler.park = failing_once
    store(writer, batch(1))
    assert handler.parked == [(1, "DataError", True)]
    assert mark() == 2


class Counting(Scripted):
    """What it stores and parks is in the database, and gone when the transaction is."""

    def write(self, batch, now):
        super().write(batch, now)
        counters.add({("f", "", "stored"): len(batch.records)}, now)

    def park(self, batch, record, error, trace, now):
        super().park(batch, record, error, trace, now)
        counters.add({("f", "", "parked"): 1}, now)


class Refusing(Watermarks):
    """The first position that is to be stored meets a deadlock."""

    refused = False

    def advance(self, group, marks, now):
        if not self.refused:
            self.refused = True
            raise caused(1213)
        super().advance(group, marks, now)


@pytest.mark.parametrize(("poison", "counted"), [(set(), {"stored": 2}), ({1}, {"parked": 1})])
def test_a_batch_whose_position_cannot_be_stored_is_not_stored_either(poison, counted, monkeypatch):
    monkeypatch.setattr(retry, "full_jitter", lambda *_, **__: 0.0)
    handler = Counting()
    handler.poison = poison
    writer = Writer(handler, Refusing(), "g")
    store(writer, batch(1) if poison else batch(1, 2))
    writer.close()
    assert (counters.totals("f"), mark()) == (counted, 2 if poison else 3)


def test_an_abandoned_batch_is_neither_done_nor_marked(writer, handler):
    handler.failures = [caused(2006, "gone away")] * 10_000
    assert writer.submit(batch(1), 1, timeout=5)
    writer.close(patience=0.1)
    assert writer.done.empty()
    assert not Watermark.objects.exists()


@pytest.mark.parametrize("close", [Writer.close, Writers.close])
def test_closing_waits_for_no_database_that_is_away(handler, close):
    handler.failures = [OperationalError("gone")] * 1000
    made = Writers(handler, Watermarks(), "g") if close is Writers.close else Writer(handler, Watermarks(), "g")
    (writer,) = getattr(made, "_all", [made])
    writer.submit(batch(1), 1, timeout=5)
    wait_for(lambda: writer.waiting, 30, "a failure")
    began = time.monotonic()
    close(made, patience=30.0)
    assert time.monotonic() - began < 10
    assert (handler.stored, writer.finished, Watermark.objects.count()) == ([], 0, 0)


def test_a_beat_reports_the_reach_asks_the_handler_what_to_store_and_for_pressure(writer, handler):
    store(writer, batch(1))
    writer.beat({("t", 0): LogEndSeen(2, time.monotonic(), caught_up=True)})
    assert writer.drain(patience=30)
    found = Watermark.objects.get()
    assert (found.end_offset, found.caught_up_at is not None, writer.pressed) == (2, True, True)
    assert handler.beats == 1


def test_an_end_counts_as_reached_when_it_was_looked_at_and_only_if_it_was_reached():
    now = database_now()
    reached, seen = (
        Writer._reach(LogEndSeen(2, time.monotonic() - 100, caught_up=caught_up), now) for caught_up in (True, False)
    )
    assert now - reached.caught_up_at > timedelta(seconds=99)
    assert (seen.end_offset, seen.caught_up_at) == (2, None)


def test_what_is_done_says_which_topic_its_offsets_belong_to(writer):
    """A topic may be created again before they are committed."""
    store(writer, batch(1))
    writer.beat({("t", 0): LogEndSeen(5, time.monotonic(), caught_up=True, passed=Passed("id", 5, 2))})
    assert writer.drain(patience=30)
    done = [writer.done.get_nowait() for _ in range(2)]
    assert [(one.sequence, one.ends, one.topic_ids) for one in done] == [
        (1, {("t", 0): 2}, {"t": "id"}),
        (0, {("t", 0): 5}, {"t": "id"}),
    ]
