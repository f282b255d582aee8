"""The owner's turns: what is sent, stored, read and forgotten when partitions come and go and transactions fail."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from config.kafka import Mark, client
from config.kafka.transactional_producer import RefusedByGroup, RefusedRecord, Unknown
from config.telemetry import metrics
from tests.exported import exported
from tests.throttler.worker.bench import Bench
from throttler.lanes.state import lane_of, lane_record_from
from throttler.worker import consumer_backend
from throttler.worker.consumer_backend import OwnerBackend, RestoredPlacing


@pytest.fixture
def bench(settings):
    return Bench(settings)


def test_a_transaction_is_counted_from_zero(settings):
    metrics.THROTTLER_TRANSACTIONS.clear()
    Bench(settings)
    assert exported(metrics.THROTTLER_TRANSACTIONS) == {("committed",): 0, ("refused",): 0, ("unknown",): 0}


def test_a_transaction_is_work_until_it_has_ended(bench, monkeypatch):
    """On a busy machine one takes longer than the time for which nobody has anything to do."""
    monkeypatch.setattr(consumer_backend, "QUIET", 0)
    backend, seen = OwnerBackend(bench.owner, None, "in"), set()
    bench.producer.takes = lambda: seen.add(backend.working)
    bench.adopt()
    bench.arrive([0])
    bench.turn()
    assert (seen, backend.working) == ({True}, False)


def test_a_right_that_is_missing_ends_the_process_and_a_broker_that_is_away_does_not(bench, caplog):
    away, refused = client.KafkaTimeoutError("away"), client.AuthorizationError("no right to the transactional id")
    answers = iter([away, refused])

    def rebuild(member):
        raise next(answers)

    bench.producer.rebuild = rebuild
    bench.owner._work()
    assert bench.owner.failure is refused
    with pytest.raises(client.AuthorizationError):
        OwnerBackend(bench.owner, None, "in").lost()
    assert "owner_failed" not in caplog.text


def test_a_topic_that_may_not_be_written_ends_it_and_makes_no_letter(bench, caplog):
    def commit(offsets, metadata):
        raise client.AuthorizationError("notifications-out")

    bench.producer.commit = commit
    bench.adopt()
    bench.arrive(range(3))
    bench.owner._work()
    assert isinstance(bench.owner.failure, client.AuthorizationError)
    assert bench.store.jobs == []
    assert "owner_failed" not in caplog.text


def test_what_was_decided_of_a_partition_that_is_given_up_is_not_sent(bench):
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    bench.owner.post(bench.owner.give_up, {0})
    bench.adopt()  # ours again, at the offset that is committed: all while a transaction took its time
    bench.arrive(range(5))
    bench.turn()
    assert bench.producer.numbers() == list(range(5))
    assert bench.settled["done"] == 2


def test_what_was_read_before_the_partition_was_placed_is_not_taken_up(bench):
    """A batch that the polling thread had in hand when a reset, or another owner, moved the offset on."""
    bench.adopt(position=8, decided=8)
    bench.arrive(range(5, 7))
    bench.turn()
    assert bench.producer.offsets == {}, "the committed offset never goes back"
    bench.arrive(range(7, 10))
    bench.turn()
    assert bench.producer.numbers() == [8, 9]


def test_rows_of_a_partition_that_is_given_up_at_once_are_forgotten(bench):
    bench.adopt()
    bench.turn()
    bench.arrive(range(30))
    bench.owner.post(bench.owner.give_up, {0})
    bench.turn()
    assert not bench.store.jobs
    assert bench.producer.numbers() == []


@pytest.mark.parametrize("fate", [RefusedByGroup("moved on"), Unknown("no answer")])
def test_nothing_of_a_transaction_that_did_not_commit_counts(bench, fate):
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    bench.producer.fate = fate
    bench.turn()
    assert bench.owner.dropped.get_nowait() == {0}
    assert bench.producer.rebuilt == int(isinstance(fate, Unknown))
    bench.arrive(range(5, 8))  # were read before
    bench.turn()
    assert bench.producer.numbers() == []
    bench.adopt()
    bench.arrive(range(8))
    bench.turn()
    assert bench.producer.numbers() == list(range(8))


def test_a_restore_is_asked_for_behind_the_transaction_in_hand(bench):
    asked = []
    restoring = SimpleNamespace(ask=asked.append, ready=dict, forget=lambda numbers: None)
    placing = RestoredPlacing(
        restoring, "notifications-in", lambda *found: None,
        lambda *gone: bench.owner.post(bench.owner.give_up, *gone), lambda: True, lambda *asked: None, {},
    )  # fmt: skip
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    placing.place(None, {("notifications-in", 0)})
    assert asked == []
    bench.turn()
    assert asked == [{0}]
    assert not bench.context.parts
    assert bench.producer.numbers() == []


def test_what_left_late_counts_from_when_it_left(bench):
    bench.adopt()
    bench.turn()
    bench.slow(2)
    bench.arrive(range(10))
    bench.turn()
    assert len(bench.producer.numbers()) == 10
    bench.slow(0)
    bench.arrive(range(10, 30))
    bench.turn()
    assert len(bench.producer.numbers()) == 10, "all of the burst left only just now"
    bench.run(1)
    assert 9 <= len(bench.producer.numbers()) - 10 <= 11


def test_a_slow_broker_slows_no_backlog(bench):
    bench.adopt()
    bench.arrive(range(600))
    bench.run(1)
    bench.slow(0.3)
    before, began = len(bench.producer.numbers()), bench.time
    for _ in range(100):
        bench.store.store()
        bench.pages.answer()
        bench.turn(0.01)
    sent = len(bench.producer.numbers()) - before
    assert 0.95 <= sent / ((bench.time - began) / 1e6 * 10) <= 1.1


@pytest.mark.parametrize(("seconds", "left"), [(5, 10), (11, 0), (3600, 0)])
def test_a_clock_that_went_forward_by_itself_gives_nothing_back(bench, seconds, left):
    """Up to ten seconds it may be a difference between clocks."""
    bench.adopt()
    bench.turn()
    bench.arrive(range(10))
    bench.turn()
    (value,) = [value for *_rest, key, value in bench.producer.sent if key == b"a" and b"tat" in value]
    bench.owner.post(bench.owner.give_up, {0})
    before, expected = len(bench.producer.numbers()), bench.clock.now()
    bench.time += seconds * 1_000_000
    bench.adopt(position=10, decided=10, lanes={"a": lane_of("a", lane_record_from(value))}, expected_us=expected)
    bench.arrive(range(10, 30))
    bench.turn()
    assert len(bench.producer.numbers()) - before == left


@pytest.mark.parametrize(("fate", "late_us"), [(Unknown("no answer"), 0), (None, 5_000_000)])
def test_a_restore_forgets_nothing_of_what_left_late(bench, fate, late_us):
    """The answer was lost; or the process killed, and the broker's time of its last record says how late it was."""
    seconds = 5
    bench.adopt()
    bench.turn()
    bench.arrive(range(10))
    if fate:
        bench.producer.fate = fate
    bench.slow(seconds)
    bench.turn()
    (value,) = [value for *_rest, key, value in bench.producer.sent if key == b"a" and b"tat" in value]
    bench.slow(0)
    bench.owner.post(bench.owner.give_up, {0})
    bench.adopt(position=10, decided=10, lanes={"a": lane_of("a", lane_record_from(value))}, late_us=late_us)
    before = len(bench.producer.numbers())
    bench.arrive(range(10, 30))
    bench.turn()
    assert len(bench.producer.numbers()) == before, "a burst has left a moment ago"


def test_a_position_of_another_topic_passes_nothing(bench):
    part = bench.adopt()
    for topic_id, read in (("another", 0), ("t", 7)):
        bench.owner.post(bench.owner.passed, {0: Mark(topic_id, 7)})
        bench.turn()
        assert part.read == read


def test_a_partition_of_which_too_much_waits_for_the_store_rests_until_half_of_it_is_stored(bench, settings):
    settings.THROTTLER_STALL_RECORDS = 10
    bench.adopt()
    stalled = []
    for offsets in (range(13), range(13, 17), range(17, 21)):  # ten go live, then 3, 4 and 4 wait
        bench.arrive(offsets)
        bench.turn()
        stalled.append(bench.owner.stalled)
    for _batch, number in bench.store.jobs:
        bench.store.done.put(SimpleNamespace(sequence=number))
        bench.turn()
        stalled.append(bench.owner.stalled)
    assert stalled == [set(), set(), {0}, {0}, set(), set()]


def test_a_record_that_the_broker_refuses_is_a_letter_when_it_comes_again(bench):
    bench.adopt()
    bench.producer.fate = RefusedRecord(1, "notifications-out", 0, "too large")
    for _ in range(2):
        bench.arrive(range(3))
        bench.turn()
        bench.adopt()
    letters = [(one.offset, one.letter.reason) for batch, _number in bench.store.jobs for one in batch.records]
    assert (letters, bench.producer.numbers()) == ([(1, "broker_refused")], [0, 2])
