"""The throttler's topics seen from outside: a source that spreads notices over time, and what is committed in a topic."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kafka
from kafka.errors import KafkaError

from config.kafka.wire_format import partition_of
from tests.crash.throttler.notices import Notice
from tests.crash.wire import BATCHES, CHUNK, Wire, partitions_of, wait_for

INPUT, OUTPUT, EXPIRED = "notifications-in", "notifications-out", "notifications-expired"
TOPICS = (INPUT, OUTPUT, EXPIRED, "notifications-changelog")
READ_BY_VERIFY = (*TOPICS, BATCHES)  # it proves every flow, also what the buffer has sent
NUMBER = "number"  # the header that names the notice


@dataclass(frozen=True)
class Committed:
    """A record that a read-committed consumer sees; `timestamp` in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def number(self) -> int:
        return int(self.headers[NUMBER])

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset

    @property
    def source(self) -> tuple[str, int, int]:
        topic, partition, offset = self.headers["source"].decode().rsplit("/", 2)
        return topic, int(partition), int(offset)


class ThrottlerWire(Wire):
    """One broker and one prefix."""

    inputs = (INPUT,)
    group = "throttler"

    def committed(self, topic: str) -> dict[int, int]:
        """The group's offset of each partition, 0 where there is none."""
        consumer = kafka.KafkaConsumer(group_id=self.name(self.group), enable_auto_commit=False, **self.options)
        try:
            return {tp.partition: consumer.committed(tp) or 0 for tp in partitions_of(consumer, self.name(topic))}
        finally:
            consumer.close()


class Committeds:
    """Reads a topic read-committed from its beginning, as far as it goes now, again and again."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.records: list[Committed] = []
        self.consumer = kafka.KafkaConsumer(
            enable_auto_commit=False, auto_offset_reset="earliest", isolation_level="read_committed",
            max_poll_records=20_000, **wire.options,
        )  # fmt: skip
        # A broker that is busy tells later of a topic that it has just made.
        self.tps = wait_for(lambda: partitions_of(self.consumer, wire.name(topic)), 30, f"{topic} to be known")
        self.consumer.assign(self.tps)
        self.consumer.seek_to_beginning(*self.tps)

    def read(self) -> list[Committed]:
        """Everything that is committed; nothing new while the broker is away."""
        try:
            ends = self.consumer.end_offsets(self.tps)
            while any(self.consumer.position(tp) < end for tp, end in ends.items()):
                for part in self.consumer.poll(timeout_ms=200).values():
                    self.records += [
                        Committed(r.partition, r.offset, r.timestamp, r.key, r.value, dict(r.headers)) for r in part
                    ]
        except KafkaError:
            pass
        return self.records

    def close(self) -> None:
        self.consumer.close()


class Source(threading.Thread):
    """Sends notices in their order, evenly over `seconds`, on a thread of its own."""

    def __init__(self, wire: Wire, notices: Sequence[Notice], partitions: int, seconds: float, seed: int) -> None:
        super().__init__(name="source", daemon=True)
        self.wire, self.notices, self.partitions, self.seconds = wire, notices, partitions, seconds
        self.random = random.Random(seed)
        self.failure: BaseException | None = None
        self.producer: Any = None

    def run(self) -> None:
        try:
            self.producer = kafka.KafkaProducer(
                **self.wire.options, acks="all", enable_idempotence=True, linger_ms=5, delivery_timeout_ms=180_000
            )
            self._send_all()
            self.producer.close()
        except BaseException as error:
            self.failure = error

    def finish(self) -> None:
        """Wait until everything is sent."""
        self.join()
        if self.failure is not None:
            raise self.failure

    def _send_all(self) -> None:
        began = time.monotonic()
        for start in range(0, len(self.notices), CHUNK):
            due = began + self.seconds * start / len(self.notices)
            time.sleep(max(0.0, due - time.monotonic()))
            for future in [self._send(notice) for notice in self.notices[start : start + CHUNK]]:
                future.get(timeout=200)

    def _send(self, notice: Notice) -> Any:
        key = notice.customer.name.encode()
        right = partition_of(key, self.partitions)
        chosen = (right + self.random.randrange(1, self.partitions)) % self.partitions if notice.astray else right
        headers = [(NUMBER, str(notice.number).encode())]
        return self.producer.send(
            self.wire.name(INPUT), key=key, value=notice.value(), headers=headers, partition=chosen
        )
