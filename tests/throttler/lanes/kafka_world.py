"""An input and its changelog on a broker, as an owner leaves them behind."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka.structs import ConsumerGroupMetadata

from config.kafka import client
from throttler.lanes.restore_thread import RestoreThread
from throttler.lanes.state import PARTITION_KEY, LaneState, PartitionRecord, lane_bytes, partition_bytes

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

    def log_position(self, partition: int, position: int, began: int = 0) -> None:
        record = PartitionRecord("", position, position, {"live": position}, began)
        self.log(partition, PARTITION_KEY, partition_bytes(record))

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


def wait(restoring: RestoreThread, *numbers: int) -> dict[int, Any]:
    """What became of exactly these partitions."""
    found: dict[int, Any] = {}
    until(lambda: found.update(restoring.ready()) or found.keys() >= set(numbers))
    assert found.keys() == set(numbers)
    return found
