"""The consumer's rounds: what was polled while the writer was busy, and what then becomes a batch."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from config.kafka.consumer import consumer_of
from config.kafka.consumer.writer import Handler, Writers
from config.kafka.records import Replayed
from outbox.bookkeeping.watermarks import Watermarks

pytestmark = pytest.mark.django_db(transaction=True)


class Gated(Handler):
    """Its first transaction waits until it is let through."""

    name, group, topics = "gated", "g", ["t"]
    gathers = True

    def __init__(self):
        self.entered, self.gate = threading.Event(), threading.Event()
        self.batches = []

    def prepare(self, batch):
        return [record.offset for record in batch.records]

    def write(self, batch, now):
        self.entered.set()
        assert self.gate.wait(30)
        self.batches.append(batch.prepared)

    def park(self, batch, record, error, trace, now):
        raise AssertionError(error)


@pytest.fixture
def consumer(monkeypatch):
    """One that polls what `polls` holds; the broker is not asked, positions are looked at in `looks`."""
    one = consumer_of(Gated(), Watermarks(), threading.Event())
    one.backend = Writers(one.source, Watermarks(), "g")
    one.polls, one.looks = [], []
    monkeypatch.setattr(one.member, "poll", lambda _timeout: one.polls.pop(0))
    one.committer = SimpleNamespace(commit_soon=lambda: False)
    one.log_ends = SimpleNamespace(
        overtaken=set(),
        look=lambda sequence, _resting, in_hand: one.looks.append(sequence),
        to_report=lambda _: {},
        submitted=lambda _: None,
    )
    yield one
    one.backend.close()


def record(offset: int) -> Replayed:
    return Replayed("t", 0, offset, 1000, None, b"")


def test_records_that_come_while_the_writer_is_busy_become_one_batch(consumer):
    consumer.polls = [[record(0)], [record(1)], [record(2)], []]
    consumer._round()
    assert consumer.source.entered.wait(30)
    consumer._round()
    consumer._round()
    # The client's position is beyond what waits: as written may count only what was submitted.
    assert consumer.looks == [1]
    consumer.source.gate.set()
    assert consumer.backend.drain(30)
    consumer._round()
    assert consumer.backend.drain(30)
    assert consumer.source.batches == [[0], [1, 2]]
    assert consumer.looks == [1, 2]


def test_no_more_wait_than_one_poll_may_bring(consumer, settings):
    settings.KAFKA_POLL_RECORDS = 2
    consumer.polls = [[record(0)], [record(1)], [record(2)]]
    consumer._round()
    assert consumer.source.entered.wait(30)
    consumer._round()
    consumer._round()
    assert not consumer.pending
    consumer.source.gate.set()
    assert consumer.backend.drain(30)
    assert consumer.source.batches == [[0], [1, 2]]


def test_nothing_is_written_of_a_partition_that_was_taken_away_nor_behind_it(consumer, monkeypatch):
    """The writer is busy until then: a watermark of what came behind would skip what was not written."""
    asked, again = [], []
    consumer.backend.close()
    consumer.backend = SimpleNamespace(
        deal=lambda records: [("one", records[:1]), ("two", records[1:])],
        submit=lambda to, _batch, timeout: asked.append(to),
        waiting=False,
        close=lambda: None,
    )
    monkeypatch.setattr(consumer.member, "owned", set)
    monkeypatch.setattr(consumer.member, "hold", lambda _hold: None)
    monkeypatch.setattr(consumer.member, "start_over", again.append)
    consumer.polls = [[]]
    consumer._submit_all([record(0), record(1)])
    assert (asked, again) == (["one"], [{("t", 0)}])


def test_what_is_in_hand_is_stored_before_a_partition_is_given_up(consumer, monkeypatch):
    left, committed = [2], []

    class Backend:
        busy = property(lambda _self: left[0] > 0)
        close = staticmethod(lambda: None)

    async def nap(_consumer, _seconds):
        left[0] -= 1

    async def commit_inside():
        committed.append(left[0])

    consumer.backend.close()
    consumer.backend, consumer.committer = Backend(), SimpleNamespace(commit_inside=commit_inside)
    consumer.member.consumer = None
    monkeypatch.setattr("config.kafka.internals.nap", nap)
    asyncio.run(consumer.finish())
    assert committed == [0]


def test_a_broker_that_is_away_is_told_for_two_seconds_at_most_that_a_member_leaves(consumer):
    """The client's own patience is half a minute."""
    asked = []
    consumer.member.consumer = SimpleNamespace(close=lambda **how: asked.append(how))
    consumer.member.leave()
    assert asked == [{"autocommit": False, "timeout_ms": 2000}]
