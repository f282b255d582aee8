"""Lanes read back from Kafka by a thread: from the embedded broker and from the real one."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.structs import ConsumerGroupMetadata

from config.kafka import client
from config.kafka.reader import ReadConnection
from tests.config.conftest import broker, make_topic  # noqa: F401 (fixtures)
from throttler.lanes import restoring as module
from throttler.lanes.changelog import PARTITION_KEY, PartitionRecord, lane_bytes, partition_bytes
from throttler.lanes.lane import LaneState
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.lanes.restoring import Restoring

real_broker = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


class World:
    """An input of three partitions with ten records each, its changelog, and a group."""

    def __init__(self, make: Callable[..., str]) -> None:
        self.input, self.changelog = make("in", 3), make("changelog", 3)
        self.group = f"{self.input}-group"
        self.producer = client.new_producer()
        for number in range(30):
            self.producer.send(self.input, value=b"m", partition=number % 3)
        self.producer.flush()

    def log(self, partition: int, key: bytes, value: bytes | None) -> None:
        self.producer.send(self.changelog, key=key, value=value, partition=partition).get(10)

    def log_position(self, partition: int, position: int) -> None:
        self.log(partition, PARTITION_KEY, partition_bytes(PartitionRecord("", position, position, {"live": position})))

    def commit(self, partition: int, offset: int) -> None:
        with closing(client.new_consumer(self.group)) as consumer:
            tp = client.TopicPartition(self.input, partition)
            consumer.assign([tp])
            consumer.commit({tp: client.OffsetAndMetadata(offset, "", -1)})

    def open_transaction(self) -> Any:
        """Of somebody who died: it is there until somebody ends it."""
        producer = client.new_producer(transactional_id=f"t{uuid.uuid4()}")
        producer.init_transactions()
        producer.begin_transaction()
        return producer

    def pend(self, stranger: Any, partition: int, offset: int) -> None:
        offsets = {client.TopicPartition(self.input, partition): client.OffsetAndMetadata(offset, "", -1)}
        stranger.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group_id=self.group))


class Told:
    """Counts what is logged; the last of each is kept."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.last: dict[str, dict[str, Any]] = {}

    def info(self, event: str, **fields: Any) -> None:
        self.times[event] += 1
        self.last[event] = fields

    warning = info


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(module, "log", found)
    return found


@pytest.fixture
def world(make_topic, told) -> Iterator[World]:  # noqa: F811
    found = World(make_topic)
    yield found
    found.producer.close()


@pytest.fixture
def restoring(world: World, settings: Any, broker: Any) -> Iterator[Restoring]:  # noqa: F811
    settings.KAFKA_TRANSACTIONS = broker is None
    with closing(Restoring(world.input, world.changelog, world.group)) as found:
        yield found


def lane(backlog: int) -> bytes:
    found = LaneState("any")
    found.drained, found.seen, found.backlog = -1, 4, backlog
    return lane_bytes(found, 1, "")


def until(done: Callable[[], Any], seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def wait(restoring: Restoring, *numbers: int) -> dict[int, Any]:
    """What became of exactly these partitions."""
    found: dict[int, Any] = {}
    until(lambda: found.update(restoring.ready()) or found.keys() >= set(numbers))
    assert found.keys() == set(numbers)
    return found


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


def test_the_same_connection_reads_what_came_later(world, restoring):
    restoring.ask({0})
    wait(restoring, 0)
    world.log_position(0, 7)
    world.commit(0, 7)
    world.log(0, b"acme", lane(1))
    restoring.ask({0})
    found = wait(restoring, 0)[0]
    assert (found.position, found.lanes.keys()) == (7, {"acme"})


def test_what_does_not_fit_is_refused_and_the_others_start(world, restoring):
    world.log_position(1, 5)
    world.commit(1, 6)
    restoring.ask({0, 1})
    found = wait(restoring, 0, 1)
    assert isinstance(found[0], RestoredPartition)
    assert isinstance(found[1], RefusedPartition)
    assert "committed offset 6" in found[1].alarm


def test_an_accepted_reset_is_told_with_the_number_of_lanes(world, told, settings, broker):  # noqa: F811
    settings.KAFKA_TRANSACTIONS = broker is None
    world.log(1, b"acme", lane(1))
    world.log_position(1, 5)
    world.commit(1, 6)
    with closing(Restoring(world.input, world.changelog, world.group, accept_reset=True)) as restoring:
        restoring.ask({1})
        assert wait(restoring, 1)[1].forgotten == {b"acme"}
    assert (told.last["reset_accepted"]["partition"], told.last["reset_accepted"]["lanes"]) == (1, 1)


@real_broker  # the embedded one makes what it is asked about
@pytest.mark.parametrize("missing", ["in", "changelog", "partition"])
def test_a_missing_topic_or_partition_is_one_line(world, told, missing):
    topics = {"in": ("none", world.changelog), "changelog": (world.input, "none")}
    with closing(Restoring(*topics.get(missing, (world.input, world.changelog)), world.group)) as restoring:
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


def test_close_ends_the_thread_whatever_it_waits_for(world, told, monkeypatch):
    idle, away = (Restoring(world.input, world.changelog, world.group) for _ in range(2))
    monkeypatch.setattr(module, "PAUSE", 1000)

    def committed(*_arguments: Any) -> Any:
        raise client.KafkaTimeoutError("away")

    monkeypatch.setattr(ReadConnection, "committed", committed)
    away.ask({0})
    until(lambda: told.times["broker_unavailable"])
    for each in (idle, away):
        each.close()
        until(lambda each=each: not each._thread.is_alive())


@real_broker
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


@real_broker
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


@real_broker
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
