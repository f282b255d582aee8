"""The broker seen from outside: topics, a producer that remembers positions, the output topic, the group's lag."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove, NewTopic
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

from tests.crash.oracle import Produced, Published
from tests.crash.traffic import REQUESTS, Sample

BATCHES, GROUP = "transfer-batches", "buffer-ingest"
CHUNK = 200


class Wire:
    """One broker and one prefix."""

    inputs: Sequence[str] = (REQUESTS,)
    group = GROUP

    def __init__(self, servers: str, prefix: str, **options: Any) -> None:
        self.servers = servers
        self.prefix = prefix
        self.options = {"bootstrap_servers": servers.split(","), **options}
        self._producer: Any = None

    @classmethod
    @contextmanager
    def of_a_run(cls, servers: str, name: str, *topics: str, lasting: bool = True) -> Iterator[Self]:
        """With a prefix that no other run has; these topics are deleted at the end, unless the broker ends with them."""
        wire = cls(servers, f"crash-{name}-{random.SystemRandom().getrandbits(32):08x}.")
        try:
            yield wire
        finally:
            wire.close()
            if lasting:
                wire.delete(*topics)

    @property
    def environment(self) -> dict[str, str]:
        """Of the workers that are to use it."""
        return {"KAFKA_BOOTSTRAP_SERVERS": self.servers, "KAFKA_TOPIC_PREFIX": self.prefix}

    def name(self, topic: str) -> str:
        return f"{self.prefix}{topic}"

    # -- topics ---------------------------------------------------------------------------------------
    def create(self, topic: str, partitions: int = 4, **config: str) -> None:
        admin = kafka.KafkaAdminClient(**self.options)
        try:
            admin.create_topics([NewTopic(self.name(topic), partitions, 1, topic_configs=config)])
            # The controller has it; the broker hears of it a moment later, on a busy machine a long one.
            wait_for(lambda: self.name(topic) in admin.list_topics(), 30, f"{topic} to be known")
        finally:
            admin.close()

    def delete(self, *topics: str) -> None:
        """Delete topics and wait until the broker has forgotten them."""
        names = {self.name(topic) for topic in topics}
        admin = kafka.KafkaAdminClient(**self.options)
        try:
            for name in names & set(admin.list_topics()):
                try:
                    admin.delete_topics([name])
                except UnknownTopicOrPartitionError:
                    pass
            deadline = time.monotonic() + 20
            while names & set(admin.list_topics()) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            admin.close()

    def configure(self, topic: str, **config: str) -> None:
        admin = kafka.KafkaAdminClient(**self.options)
        try:
            wanted = ConfigResource(ConfigResourceType.TOPIC, self.name(topic), configs=config)
            admin.alter_configs([wanted], raise_on_unknown=False)  # the broker itself knows what it knows
        finally:
            admin.close()

    def evict(self) -> None:
        """Throw every member out of the group, as the end of its session would: the dead go, the living join again."""
        admin = kafka.KafkaAdminClient(**self.options)
        group = self.name(self.group)
        try:
            members = admin.describe_groups([group])[group]["members"]
            if members:
                admin.remove_group_members(group, [MemberToRemove(member_id=m["member_id"]) for m in members])
        finally:
            admin.close()

    # -- in -------------------------------------------------------------------------------------------
    def produce(self, samples: Sequence[Sample]) -> list[Produced]:
        """Send, wait for every acknowledgement, and say where each record stands."""
        if self._producer is None:
            self._producer = kafka.KafkaProducer(
                **self.options, acks="all", enable_idempotence=True, linger_ms=5, batch_size=128 * 1024
            )
        futures = [
            self._producer.send(
                self.name(sample.topic), key=sample.key, value=sample.value, timestamp_ms=sample.timestamp
            )
            for sample in samples
        ]
        self._producer.flush(timeout=60)
        placed = [future.get(timeout=30) for future in futures]
        return [Produced(s, at.partition, at.offset) for s, at in zip(samples, placed, strict=True)]

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # -- out ------------------------------------------------------------------------------------------
    def output(self) -> Output:
        return Output(self, BATCHES)

    def lag(self) -> int:
        """Records of the input topics that the group has not committed."""
        consumer = kafka.KafkaConsumer(group_id=self.name(self.group), enable_auto_commit=False, **self.options)
        try:
            tps = [tp for topic in self.inputs for tp in partitions_of(consumer, self.name(topic))]
            ends = consumer.end_offsets(tps)
            return sum(ends[tp] - (consumer.committed(tp) or 0) for tp in tps)
        finally:
            consumer.close()


class Output:
    """Reads a topic from its beginning, as far as it goes now, again and again."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.records: list[Published] = []
        self.consumer = kafka.KafkaConsumer(
            enable_auto_commit=False, auto_offset_reset="earliest", isolation_level="read_committed", **wire.options
        )
        self.tps = partitions_of(self.consumer, wire.name(topic))
        self.consumer.assign(self.tps)
        self.consumer.seek_to_beginning(*self.tps)

    def read(self) -> list[Published]:
        """Everything in the topic up to its present end."""
        ends = self.consumer.end_offsets(self.tps)
        while any(self.consumer.position(tp) < end for tp, end in ends.items()):
            for part in self.consumer.poll(timeout_ms=200).values():
                self.records += [Published(r.partition, r.offset, r.key, r.value, tuple(r.headers or ())) for r in part]
        return self.records

    def close(self) -> None:
        self.consumer.close()


def partitions_of(consumer: Any, topic: str) -> list[Any]:
    return [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]


class Source(threading.Thread):
    """Sends samples in equal shares, each when it is asked for, on a thread of its own.

    `seconds` spreads a share; 0 sends it as fast as the broker takes it.
    """

    def __init__(self, wire: Wire, samples: Sequence[Sample], shares: int = 1, seconds: float = 0.0) -> None:
        super().__init__(name="source", daemon=True)
        self.wire = wire
        self.samples = samples
        self.share = -(-len(samples) // shares)
        self.seconds = seconds
        self.produced: list[Produced] = []
        self.failure: BaseException | None = None
        self._asked = threading.Semaphore(0)

    def more(self) -> None:
        """Send the next share."""
        self._asked.release()

    def run(self) -> None:
        try:
            for start in range(0, len(self.samples), self.share):
                self._asked.acquire()
                self._send(self.samples[start : start + self.share])
        except KafkaError as error:
            self.failure = error

    def _send(self, share: Sequence[Sample]) -> None:
        began = time.monotonic()
        for start in range(0, len(share), CHUNK):
            due = began + self.seconds * start / len(share)
            time.sleep(max(0.0, due - time.monotonic()))
            self.produced += self.wire.produce(share[start : start + CHUNK])

    def finish(self) -> list[Produced]:
        """Send what is left; everything that was produced."""
        while self.is_alive():
            self.more()
            self.join(0.05)
        if self.failure is not None:
            raise self.failure
        return self.produced


def wait_for(condition: Callable[[], Any], seconds: float, what: str, pause: float = 0.05) -> Any:
    """The first truthy value of `condition`; an AssertionError that says `what` was waited for after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
    return found


def orders_in(records: Iterable[Published]) -> list[tuple[str, str]]:
    """(location, order) of every delivery, repeated deliveries of one batch counted once."""
    bodies = {body["batch_id"]: body for body in (json.loads(record.value) for record in records)}
    return [(body["location_id"], order) for body in bodies.values() for order in body["order_ids"]]
