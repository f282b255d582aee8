"""Lanes read back while transactions of others are open."""

from __future__ import annotations

from config.kafka.reader import ReadConnection
from tests.throttler.lanes.kafka_world import lane, real_broker, until, wait
from throttler.lanes.state import PARTITION_KEY, PartitionRecord, partition_bytes

pytestmark = real_broker


def test_a_pending_offset_is_waited_for_and_told_once_while_the_others_start(world, restoring, told, monkeypatch):
    answers = []
    real = ReadConnection.committed
    monkeypatch.setattr(ReadConnection, "committed", lambda *asked: answers.append(real(*asked)) or answers[-1])
    stranger = world.open_transaction()
    world.pend(stranger, 1, 5)
    restoring.ask({0, 1, 2})
    wait(restoring, 0, 2)
    until(lambda: sum(bool(answer.pending) for answer in answers) > 2)
    assert told.last["committed_offset_pending"]["partitions"] == [1]
    world.log_position(1, 5)
    stranger.commit_transaction()
    assert wait(restoring, 1)[1].position == 5
    assert told.times["committed_offset_pending"] == 1
    stranger.close()


def test_an_open_transaction_hides_nothing_that_was_committed_behind_it(world, restoring):
    """The end that a committed reader sees lies before it: the lane would be missed, and its messages stranded."""
    stranger = world.open_transaction()
    stranger.send(world.changelog, key=b"open", value=lane(9), partition=1).get(10)
    world.log(1, b"acme", lane(3))
    world.log_position(1, 5)
    world.commit(1, 5)
    restoring.ask({0, 1})
    wait(restoring, 0)
    stranger.abort_transaction()
    assert wait(restoring, 1)[1].lanes.keys() == {"acme"}
    stranger.close()


def test_one_that_waits_can_be_forgotten(world, restoring, told):
    stranger = world.open_transaction()
    world.pend(stranger, 1, 5)
    restoring.ask({1})
    until(lambda: told.times["committed_offset_pending"])
    restoring.forget({1})
    until(lambda: not restoring._worker.work)
    stranger.abort_transaction()
    stranger.close()


def test_what_was_forgotten_is_not_read_any_further(world, restoring):
    stranger = world.open_transaction()
    stranger.send(world.changelog, key=b"open", value=lane(9), partition=1).get(10)
    restoring.ask({1})
    until(lambda: restoring._worker.changelog and restoring._worker.changelog.reading)
    restoring.forget({1})
    until(lambda: not restoring._worker.work)
    stranger.commit_transaction()
    world.log(0, b"acme", lane(3))
    world.log_position(0, 5)
    world.commit(0, 5)
    restoring.ask({0})
    assert wait(restoring, 0)[0].lanes.keys() == {"acme"}
    assert not restoring._worker.changelog.reading
    stranger.close()


def test_what_is_committed_while_it_is_waited_for_is_read(world, restoring):
    """The changelog's end is taken after the offset: otherwise the offset would be ahead of what was read."""
    stranger = world.open_transaction()
    stranger.send(world.changelog, key=b"acme", value=lane(3), partition=1).get(10)
    record = partition_bytes(PartitionRecord("", 5, 5, {}))
    stranger.send(world.changelog, key=PARTITION_KEY, value=record, partition=1).get(10)
    world.pend(stranger, 1, 5)
    restoring.ask({0, 1})
    wait(restoring, 0)
    stranger.commit_transaction()
    found = wait(restoring, 1)[1]
    assert (found.position, found.lanes.keys()) == (5, {"acme"})
    stranger.close()
