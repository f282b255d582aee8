"""Several writers: partitions are stored side by side, each in its own order, and nothing is done too early."""

import threading
from collections import defaultdict

import pytest
from django.db import connection

from config.kafka.consumer.writer import Handler, LogEndSeen, Writers, parallel_writers
from config.kafka.records import RecordBatch, Replayed
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks

pytestmark = pytest.mark.django_db(transaction=True)


class Gated(Handler):
    """A handler whose transactions of a partition wait until that partition is let through.

    On SQLite, which takes one transaction at a time, they wait before they begin.
    """

    name, group, topics = "gated", "g", ["t"]

    def __init__(self):
        self.gates = defaultdict(threading.Event)
        self.entered = defaultdict(threading.Event)
        self.stored = []
        self.asked = 0

    def prepare(self, batch):
        found = [(record.partition, record.offset) for record in batch.records]
        if connection.vendor == "sqlite":
            self.wait(found)
        return found

    def write(self, batch, now):
        if connection.vendor != "sqlite":
            self.wait(batch.prepared)
        self.stored += batch.prepared

    def wait(self, found):
        for partition, _offset in found:
            self.entered[partition].set()
            assert self.gates[partition].wait(30)

    def park(self, batch, record, error, trace, now):
        raise AssertionError(error)

    def pressure(self):
        self.asked += 1
        return False

    def let_through(self, *partitions):
        for partition in partitions:
            self.gates[partition].set()


@pytest.fixture
def handler():
    return Gated()


@pytest.fixture
def two(handler):
    writers = Writers(handler, Watermarks(), "g", 2)
    yield writers
    handler.let_through(*range(9))
    writers.close()


def records(partition, *offsets):
    return [Replayed("t", partition, offset, 0, None, b"") for offset in offsets]


def hand_over(writers, found):
    """As the consumer does; returns who got what."""
    shares = [(writer, list(share)) for writer, share in writers.deal(found)]
    for writer, share in shares:
        assert writers.submit(writer, RecordBatch(share, {"t": "id"}), timeout=5)
    return [(writer, [(r.partition, r.offset) for r in share]) for writer, share in shares]


def done(writers):
    return sorted(end for finished in writers.finished() for end in finished.ends.items())


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite takes one transaction at a time")
def test_two_partitions_are_stored_at_the_same_time(two, handler):
    hand_over(two, records(0, 1) + records(1, 1))
    assert handler.entered[0].wait(30)
    assert handler.entered[1].wait(30)  # although the first transaction is still open
    handler.let_through(0, 1)
    assert two.drain(30)
    assert sorted(handler.stored) == [(0, 1), (1, 1)]


def test_a_partition_stays_with_its_writer_while_a_batch_of_it_is_under_way(two, handler):
    ((first, _),) = hand_over(two, records(0, 1))
    assert handler.entered[0].wait(30)
    shares = hand_over(two, records(0, 2) + records(1, 1))
    assert shares[0] == (first, [(0, 2)])
    assert shares[1][0] is not first
    handler.let_through(1)
    assert shares[1][0].drain(30)
    # The other writer is idle, and still not given what would overtake.
    assert [writer for writer, _ in two.deal(records(0, 3))] == [first]
    handler.let_through(0)
    assert two.drain(30)
    assert [offset for partition, offset in handler.stored if partition == 0] == [1, 2]


def test_what_is_done_is_committed_but_nothing_before_it_counts_as_done(two, handler):
    hand_over(two, records(0, 1))
    hand_over(two, records(1, 5))
    handler.let_through(1)
    assert handler.entered[0].wait(30)
    two._last["t", 1][0].drain(30)
    assert done(two) == [(("t", 1), 6)]
    assert (two.sequence, two.done_sequence, two.busy) == (2, 0, True)
    handler.let_through(0)
    assert two.drain(30)
    assert done(two) == [(("t", 0), 2)]
    assert two.done_sequence == 2
    assert dict(Watermark.objects.values_list("partition", "next_offset")) == {0: 2, 1: 6}


def test_a_refused_batch_takes_no_number(two, handler):
    for offset in (1, 2):
        hand_over(two, records(0, offset))
        assert handler.entered[0].wait(30)
    ((writer, share),) = two.deal(records(0, 3))
    assert not two.submit(writer, RecordBatch(share, {}), timeout=0.01)
    assert two.sequence == 2


def test_pressure_is_asked_for_although_batches_follow_each_other(two, handler):
    """At the high-water mark there is no gap between batches, and that is when it matters."""
    for offset in (1, 2):
        hand_over(two, records(0, offset))
        assert handler.entered[0].wait(30)
    two.beat({("t", 0): LogEndSeen(9, 0.0, caught_up=False)})
    two.beat({("t", 1): LogEndSeen(7, 0.0, caught_up=False)})
    handler.let_through(0)
    assert two.drain(30)
    assert handler.asked >= 1
    assert dict(Watermark.objects.values_list("partition", "end_offset")) == {0: 9, 1: 7}


def test_closing_gives_up_what_does_not_end(two, handler):
    hand_over(two, records(0, 1))
    assert handler.entered[0].wait(30)  # on SQLite the other one would keep it out for good
    hand_over(two, records(1, 1))
    threading.Timer(0.5, handler.let_through, [0, 1]).start()
    two.close(patience=0.1)
    assert not two.busy
    assert done(two) == []


def test_sqlite_has_one_writer(settings):
    settings.KAFKA_WRITERS = 3
    assert parallel_writers() == (1 if connection.vendor == "sqlite" else 3)
