"""Lanes read back from Kafka by a thread: from the embedded broker and from the real one."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest

from config.kafka import client
from config.kafka.reader import ReadConnection, Reader
from tests.config.kafka.test_unpack import batch_of
from tests.raw_batches import RawProducer, compressed
from tests.throttler.lanes.kafka_world import lane, real_broker, until, wait
from throttler.lanes import restore_thread as module
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.lanes.restore_thread import RestoreThread


def test_lanes_come_back_with_the_offset_and_the_totals(world, restoring, told):
    for key, value in ((b"acme", lane(1)), (b"globex", lane(2)), (b"acme", lane(3)), (b"globex", None)):
        world.log(1, key, value)
    world.log_position(1, 5)
    world.commit(1, 5)
    restoring.ask({0, 1})
    found = wait(restoring, 0, 1)
    assert (found[0].position, found[0].lanes) == (0, {})
    assert (found[1].position, found[1].decided, found[1].totals) == (5, 5, {"live": 5})
    assert {name: each.backlog for name, each in found[1].lanes.items()} == {"acme": 3}
    until(lambda: told.times["lanes_restored"])
    assert (told.last["lanes_restored"]["partitions"], told.last["lanes_restored"]["lanes"]) == (2, 1)


def test_the_brokers_time_of_a_partitions_record_tells_how_late_it_was(world, restoring):
    began = int((time.time() - 5) * 1e6)
    world.log_position(1, 5, began)
    world.log(1, b"acme", lane(1))  # later, and of another transaction
    world.commit(1, 5)
    restoring.ask({1})
    assert 5_000_000 <= wait(restoring, 1)[1].late_us + 1000 <= 8_000_000


def test_the_same_connection_reads_what_came_later(world, restoring):
    restoring.ask({0})
    wait(restoring, 0)
    world.log_position(0, 7)
    world.commit(0, 7)
    world.log(0, b"acme", lane(1))
    restoring.ask({0})
    found = wait(restoring, 0)[0]
    assert (found.position, found.lanes.keys()) == (7, {"acme"})


def test_a_connection_that_nobody_needs_is_closed_and_made_again(world, restoring, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 0.01)
    for _ in range(2):
        restoring.ask({0})
        wait(restoring, 0)
        until(lambda: restoring._worker.connection is None)


def test_what_does_not_fit_is_refused_and_the_others_start(world, restoring):
    world.log_position(1, 5)
    world.commit(1, 6)
    restoring.ask({0, 1})
    found = wait(restoring, 0, 1)
    assert isinstance(found[0], RestoredPartition)
    assert isinstance(found[1], RefusedPartition)
    assert "committed offset 6" in found[1].alarm


def test_an_accepted_reset_names_the_lanes_that_are_forgotten(world, settings, broker):
    settings.KAFKA_TRANSACTIONS = broker is None
    world.log(1, b"acme", lane(1))
    world.log_position(1, 5)
    world.commit(1, 6)
    with closing(RestoreThread(world.input, world.changelog, world.group, accept_reset=True)) as restoring:
        restoring.ask({1})
        assert wait(restoring, 1)[1].forgotten == {b"acme"}


@real_broker  # the embedded one makes what it is asked about
@pytest.mark.parametrize("missing", ["in", "changelog", "partition"])
def test_a_missing_topic_or_partition_is_one_line(world, told, missing):
    topics = {"in": ("none", world.changelog), "changelog": (world.input, "none")}
    with closing(RestoreThread(*topics.get(missing, (world.input, world.changelog)), world.group)) as restoring:
        restoring.ask({7 if missing == "partition" else 0})
        (found,) = wait(restoring, 7 if missing == "partition" else 0).values()
    assert isinstance(found, RefusedPartition)
    assert "create_topics makes" in found.alarm


def test_what_was_forgotten_is_not_reported(world, restoring):
    restoring.ask({0, 1})
    restoring.forget({0})
    wait(restoring, 1)
    restoring.ask({0})
    until(lambda: restoring._done)  # finished, and not asked for yet
    restoring.forget({0})
    restoring.ask({2})
    wait(restoring, 2)


def test_a_result_of_an_older_asking_is_dropped(world, restoring):
    restoring.ask({0})
    until(lambda: restoring._done)
    asking = 1
    restoring.ask({0})
    restoring.hand_over(0, asking, RefusedPartition(0, "of the first asking"))
    assert isinstance(wait(restoring, 0)[0], RestoredPartition)


def test_a_result_that_nobody_took_is_dropped_when_it_is_asked_for_again(world, restoring):
    restoring.ask({0})
    until(lambda: restoring._done)
    world.log_position(0, 7)
    world.commit(0, 7)
    restoring.ask({0})
    assert wait(restoring, 0)[0].position == 7


def test_what_was_half_read_when_the_broker_went_away_is_read_again(world, restoring, monkeypatch):
    world.log(0, b"acme", lane(3))
    failures = iter([client.KafkaTimeoutError("away")])
    real = Reader.step

    def step(self: Reader, patience: float) -> Any:
        for error in failures:
            raise error
        return real(self, patience)

    monkeypatch.setattr(Reader, "step", step)
    world.log_position(0, 5)
    world.commit(0, 5)
    restoring.ask({0})
    assert wait(restoring, 0)[0].lanes.keys() == {"acme"}


def test_errors_of_the_broker_are_told_once_and_tried_again(world, restoring, told, monkeypatch):
    failures = iter([client.KafkaTimeoutError("away"), client.KafkaError("odd"), client.KafkaTimeoutError("away")])
    real = ReadConnection.logs

    def logs(self: ReadConnection, *arguments: Any) -> Any:
        for error in failures:
            raise error
        return real(self, *arguments)

    monkeypatch.setattr(ReadConnection, "logs", logs)
    monkeypatch.setattr(module, "PAUSE", 0.01)
    restoring.ask({0, 1})
    wait(restoring, 0, 1)
    assert told.times["broker_unavailable"] == 1


def test_a_bug_in_the_thread_reaches_whoever_waits_for_it(world, restoring, monkeypatch):
    def restored(*_arguments: Any, **_options: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "restored", restored)
    restoring.ask({0})
    with pytest.raises(ZeroDivisionError):
        until(restoring.ready)
    with pytest.raises(ZeroDivisionError):
        restoring.ready()


def test_a_missing_right_reaches_whoever_waits_for_it(world, restoring, monkeypatch):
    def committed(*_arguments: Any) -> Any:
        raise client.AuthorizationError

    monkeypatch.setattr(ReadConnection, "committed", committed)
    restoring.ask({0})
    with pytest.raises(client.AuthorizationError):
        until(restoring.ready)


def test_close_is_seen_also_between_two_rounds(world, restoring, monkeypatch):
    real = restoring._wanted

    def wanted() -> Any:
        monkeypatch.setattr(restoring, "_wanted", real)
        restoring._closed = True
        restoring._wake.set()
        return real()

    restoring._wanted = wanted
    restoring._wake.set()
    until(lambda: not restoring._thread.is_alive())


def test_close_ends_the_thread_whatever_it_waits_for(world, told, monkeypatch):
    idle, away = (RestoreThread(world.input, world.changelog, world.group) for _ in range(2))
    monkeypatch.setattr(module, "PAUSE", 1000)

    def committed(*_arguments: Any) -> Any:
        raise client.KafkaTimeoutError("away")

    monkeypatch.setattr(ReadConnection, "committed", committed)
    away.ask({0})
    until(lambda: told.times["broker_unavailable"])
    for each in (idle, away):
        each.close()
        until(lambda each=each: not each._thread.is_alive())


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)  # the real one refuses to take it
def test_a_batch_of_the_changelog_that_nobody_can_read_is_an_alarm_until_a_reset_is_accepted(world, broker, settings):
    """Whose lanes it held nobody knows; the tombstone that a reset leaves for it ends the alarm."""
    settings.KAFKA_TRANSACTIONS = False
    world.log(0, b"acme", lane(3))
    world.log_position(0, 5)
    world.commit(0, 5)
    with closing(RawProducer()) as producer:
        assert (
            producer.send(world.changelog, 0, compressed(bytes(batch_of([(1, b"k", b"v", [])] * 2)), 1, b"junk")) == 0
        )
    assert "the changelog's record of offsets 2 to 3 cannot be read" in restored(world).alarm
    forgotten = restored(world, accept_reset=True).forgotten
    assert len(forgotten) == 2
    for key in forgotten:
        world.log(0, key, None)
    assert restored(world).position == 5


def restored(world: Any, **options: bool) -> Any:
    with closing(RestoreThread(world.input, world.changelog, world.group, **options)) as one:
        one.ask({0})
        return wait(one, 0)[0]
