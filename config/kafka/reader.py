"""Reads a topic without a group: from one offset to another, or a timeframe; commits nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from config.kafka import client, internals
from config.kafka.positions import Log, Mark, TopicPartition
from config.kafka.records import Record

# -- From one offset to another ------------------------------------------------------------------------------
PATIENCE = 10.0  # seconds a question to the broker may take
PERSON_MS = 3000  # of a person who waits for a page
QUIET = 3.0  # seconds without progress after which the broker is asked whether it is there
JUST_MADE = 0.5  # seconds that a reader waits for a topic, for a person often; a worker that starts waits longer
PENDING_MS = 100  # for one offset, after some of them were found to be pending


class MissingTopic(client.KafkaError):
    """A topic or a partition that is to be read does not exist; the text is one line."""

    def __str__(self) -> str:
        return str(self.args[0])


class LogChanged(client.KafkaError):
    """What is being read is not there any more: records were removed unread, or the topic was created again; one line."""

    def __str__(self) -> str:
        return str(self.args[0])


class TopicRecreated(LogChanged):
    """The topic that has this name now is another one."""


@dataclass(frozen=True)
class GroupOffsets:
    """What a group has committed; a partition of `pending` has an open transaction that may commit another offset."""

    settled: dict[int, int | None]
    pending: frozenset[int]


class ReadConnection:
    """One client for several reads: each new one costs 0.3 s. One thread at a time; its calls raise KafkaError.

    `group` is the one whose offsets are asked for; it is not joined. What is damaged comes as an UnreadableBatch: nothing
    is committed behind it.
    """

    def __init__(self, group: str | None = None, **overrides: object) -> None:
        self.consumer = client.new_consumer(group, **overrides)
        internals.unpack_damaged(self.consumer)

    def only_newest(self) -> ReadConnection:
        """Readers on it give, in place of records, a NewestOfBatch for each batch: half the time of a record each."""
        internals.unpack_only_newest(self.consumer)
        return self

    def close(self) -> None:
        self.consumer.close(autocommit=False)

    def partitions_of(self, topic: str, wanted: Iterable[int] | None = None) -> list[client.TopicPartition]:
        """The topic's partitions, or the wanted ones of them; raises MissingTopic."""
        deadline = time.monotonic() + JUST_MADE
        while not (count := self._count(topic)):
            if time.monotonic() > deadline:
                raise MissingTopic(f"topic {topic} does not exist: create_topics makes it")
            time.sleep(0.1)
        numbers = sorted(range(count) if wanted is None else wanted)
        if numbers and numbers[-1] >= count:
            raise MissingTopic(
                f"topic {topic} has {count} partitions, {numbers[-1]} is not one of them: "
                f"create_topics makes missing topics, but adds no partition"
            )
        return [client.TopicPartition(topic, number) for number in numbers]

    def _count(self, topic: str) -> int:
        try:
            internals.refresh_metadata(self.consumer, topic, _ms(PATIENCE))
        except client.UnknownTopicOrPartitionError:
            return 0
        return internals.partition_count(self.consumer, topic)

    def logs(self, topic: str, partitions: Iterable[int] | None = None) -> dict[int, Log]:
        """The topic's id, and where its logs begin and end: behind whatever transaction is open. MissingTopic."""
        tps = self.partitions_of(topic, partitions)
        topic_id = internals.topic_id_of(self.consumer, topic)
        begins = self.consumer.beginning_offsets(tps, timeout_ms=_ms(PATIENCE))
        ends = internals.ends_of_logs(self.consumer, tps, _ms(PATIENCE))
        return {tp.partition: Log(topic_id, begins[tp], ends[tp], None) for tp in tps}

    def committed(self, topic: str, partitions: Iterable[int], patience: float) -> GroupOffsets:
        """The group's offsets as a committed reader sees them; KafkaTimeoutError when the broker is away, MissingTopic."""
        tps = self.partitions_of(topic, partitions)  # of a topic that is missing the broker gives no answer
        settled = self._settled(tps, patience)
        if settled is None:
            internals.committed_before(self.consumer, tps, _ms(PATIENCE))  # raises if it is the broker that is silent
            settled = {}
            for tp in tps if len(tps) > 1 else ():
                settled |= self._settled([tp], PENDING_MS / 1000) or {}
        return GroupOffsets(settled, frozenset(tp.partition for tp in tps) - settled.keys())

    def _settled(self, tps: Sequence[client.TopicPartition], patience: float) -> dict[int, int | None] | None:
        """All of them; None while one is pending."""
        try:
            committed = internals.committed_of(self.consumer, tps, _ms(patience))
        except client.KafkaTimeoutError:
            return None
        return {tp.partition: committed.get(tp) for tp in tps}


class Reader:
    """A topic's id, and the records of its partitions up to the ends they had when they were added.

    `partitions` are numbers, None is all. Closes its connection unless one was given. Raises MissingTopic, and LogChanged.
    """

    def __init__(
        self, topic: str, partitions: Iterable[int] | None = None, connection: ReadConnection | None = None
    ) -> None:
        self.topic, self.topic_id = topic, ""
        self.connection = connection or ReadConnection()
        self.consumer, self.own = self.connection.consumer, connection is None
        self.begins: dict[client.TopicPartition, int] = {}
        self.ends: dict[client.TopicPartition, int] = {}
        self.reading: set[client.TopicPartition] = set()
        self._moved = 0.0
        try:
            self.add(partitions)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self.own:
            self.connection.close()

    @property
    def tps(self) -> list[client.TopicPartition]:
        return sorted(self.ends)

    @property
    def total(self) -> int:
        """How many offsets there are between begin and end."""
        return sum(self.ends[tp] - self.begins[tp] for tp in self.ends)

    def insist_on(self, topic_id: str) -> None:
        """Read nothing but the topic that had this id; raises TopicRecreated."""
        if topic_id and self.topic_id not in ("", topic_id):
            raise _created_again(self.topic)

    def add(self, partitions: Iterable[int] | None) -> None:
        """Read these too, up to their ends as they are now; one that is being read already starts over."""
        if partitions is not None and not (partitions := set(partitions)):
            return
        logs = self.connection.logs(self.topic, partitions)
        tps = {client.TopicPartition(self.topic, number): log for number, log in logs.items()}
        topic_id = next(iter(logs.values())).topic_id
        if self.reading and topic_id != self.topic_id:
            raise _created_again(self.topic)
        self.topic_id = topic_id
        self.begins |= {tp: log.begin for tp, log in tps.items()}
        self.ends |= {tp: log.end for tp, log in tps.items()}
        self._start(tps)

    def drop(self, partitions: Iterable[int]) -> None:
        """Do not read these any further."""
        self._assign(self.reading - {client.TopicPartition(self.topic, number) for number in partitions})

    def step(self, patience: float) -> dict[int, Sequence[Any]]:
        """Some records of each partition, after at most `patience` seconds; `reading` says what has not ended.

        Raises KafkaError when the broker is away, which the client's own poll() never says.
        """
        polled = _poll(self.consumer, self.topic, self.topic_id, _ms(patience))
        parts = {
            tp.partition: part if part[-1].offset < self.ends[tp] else [r for r in part if r.offset < self.ends[tp]]
            for tp, part in polled.items()
        }
        # Control records and compaction leave gaps: the position decides, not the last record seen.
        self._assign({tp for tp in self.reading if not self._has_ended(tp)})
        self._look_after_the_broker(bool(polled))
        return {number: part for number, part in parts.items() if part}

    def batches(self) -> Iterator[Sequence[Record]]:
        """Every record below the ends, from the beginning, some thousand at a time."""
        self._start(self.ends)
        while self.reading:
            yield from self.step(0.5).values()

    def _start(self, tps: Iterable[client.TopicPartition]) -> None:
        new = {tp for tp in tps if self.begins[tp] < self.ends[tp]}
        self._assign(self.reading - set(tps) | new)
        for tp in new:
            self.consumer.seek(tp, self.begins[tp])
        self._moved = time.monotonic()

    def _assign(self, tps: set[client.TopicPartition]) -> None:
        if tps != self.reading:
            self.consumer.assign(list(tps))
            self.reading = tps

    def _has_ended(self, tp: client.TopicPartition) -> bool:
        position = self.consumer.position(tp, timeout_ms=_ms(PATIENCE))
        return position is not None and position >= self.ends[tp]

    def _look_after_the_broker(self, moved: bool) -> None:
        if moved or not self.reading:
            self._moved = time.monotonic()
        elif time.monotonic() - self._moved > QUIET:
            self.consumer.end_offsets(list(self.reading), timeout_ms=_ms(PATIENCE))
            self._moved = time.monotonic()


def _poll(
    consumer: client.Client, topic: str, topic_id: str, timeout_ms: int
) -> dict[client.TopicPartition, list[Record]]:
    """Records of the topic that has this id; raises LogChanged.

    The id is asked for behind the records: what was fetched until then is of the topic that has it.
    """
    try:
        polled = consumer.poll(timeout_ms=timeout_ms)
    except client.OUT_OF_RANGE as error:
        _refuse_another(consumer, topic, topic_id)
        gone = ", ".join(f"{name}/{number}" for name, number in sorted(client.places_of(error)))
        raise LogChanged(f"{gone}: records were removed before they were read") from error
    if polled:
        _refuse_another(consumer, topic, topic_id)
    return polled


def _refuse_another(consumer: client.Client, topic: str, topic_id: str) -> None:
    """Raise LogChanged if the topic was created again since it had this id; "" is what old brokers give."""
    if not topic_id:
        return
    internals.refresh_metadata(consumer, topic, _ms(PATIENCE))
    if internals.topic_id_of(consumer, topic) not in ("", topic_id):
        raise _created_again(topic)


def _created_again(topic: str) -> TopicRecreated:
    return TopicRecreated(f"topic {topic} was created again while it was read")


def record_at(topic: str, partition: int, offset: int) -> Record | None:
    """The record at a position; None if the log holds none there. KafkaError after a few seconds without an answer."""
    with closing(ReadConnection(bootstrap_timeout_ms=PERSON_MS)) as connection:
        consumer, tp = connection.consumer, client.TopicPartition(topic, partition)
        if partition not in (consumer.partitions_for_topic(topic) or ()):
            return None
        begin = consumer.beginning_offsets([tp], timeout_ms=PERSON_MS)[tp]
        if not begin <= offset < consumer.end_offsets([tp], timeout_ms=PERSON_MS)[tp]:
            return None
        consumer.assign([tp])
        consumer.seek(tp, offset)
        records = consumer.poll(timeout_ms=PERSON_MS).get(tp, ())
        return next((record for record in records if record.offset == offset), None)


def committed_offsets(group: str, topic: str) -> dict[TopicPartition, Mark]:
    """The offsets a group has committed and the log still holds, read without joining the group."""
    with closing(ReadConnection(group)) as connection:
        consumer = connection.consumer
        tps = [client.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        ends = consumer.end_offsets(tps, timeout_ms=10_000)
        committed = internals.committed_of(consumer, tps, timeout_ms=10_000)
        topic_id = internals.topic_id_of(consumer, topic)
    return {tp: Mark(topic_id, min(offset, ends[tp])) for tp, offset in committed.items()}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


# -- A timeframe ---------------------------------------------------------------------------------------------
TIMEFRAME_QUIET = 10.0  # seconds without a record after which the broker is asked whether it is there
ANSWER_MS = 10_000


@dataclass(frozen=True)
class Bounds:
    """The offsets of one partition to look at: `start` inclusive, `end` exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Part:
    """Some records of one partition, and the offset below which all have been given."""

    partition: int
    records: Sequence[Record]
    position: int


class Timeframe:
    """The records of `topic` with a timestamp in [since, until), in milliseconds.

    Timestamps are the producers' and need not rise with the offsets: the search looks `slack` milliseconds
    further on both sides, and each record's own timestamp decides. A broker that cannot search
    by time (the embedded one) is read from the beginning. Raises KafkaError when none answers, and LogChanged.
    """

    def __init__(self, topic: str, since: int, until: int, slack: int) -> None:
        self.topic, self.since, self.until, self.slack = topic, since, until, slack
        self.connection = ReadConnection()
        self.consumer = self.connection.consumer
        numbers = self.consumer.partitions_for_topic(topic) or ()
        self.tps = [client.TopicPartition(topic, number) for number in sorted(numbers)]
        self.topic_id = internals.topic_id_of(self.consumer, topic)

    def __enter__(self) -> Timeframe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.connection.close()

    def bounds(self) -> dict[int, Bounds]:
        """The timeframe's offsets in each partition, as far as the log still has them."""
        begins = self.consumer.beginning_offsets(self.tps, timeout_ms=ANSWER_MS)
        ends = self.consumer.end_offsets(self.tps, timeout_ms=ANSWER_MS)
        first = self._search(0)
        if not any(first.values()) and any(begins[tp] < ends[tp] for tp in self.tps):
            return {tp.partition: Bounds(begins[tp], ends[tp]) for tp in self.tps}
        starts, stops = self._search(max(0, self.since - self.slack)), self._search(self.until + self.slack)
        _refuse_another(self.consumer, self.topic, self.topic_id)
        return {tp.partition: Bounds(_offset(starts[tp], ends[tp]), _offset(stops[tp], ends[tp])) for tp in self.tps}

    def _search(self, timestamp: int) -> dict[client.TopicPartition, client.OffsetAndTimestamp | None]:
        return self.consumer.offsets_for_times(dict.fromkeys(self.tps, timestamp), timeout_ms=ANSWER_MS)

    def parts(self, bounds: Mapping[int, Bounds], size: int) -> Iterator[Part]:
        """Partition by partition, `size` records at a time, so that two runs do exactly the same steps.

        In between come parts without records, which only say how far the search is.
        """
        for tp in self.tps:
            here = bounds.get(tp.partition)
            if here and here.start < here.end:
                held: list[Record] = []
                for records, position in self._polls(tp, here):
                    held += records
                    while len(held) >= size:
                        part, held = held[:size], held[size:]
                        yield Part(tp.partition, part, part[-1].offset + 1)
                    yield Part(tp.partition, [], held[0].offset if held else position)
                yield Part(tp.partition, held, here.end)

    def _polls(self, tp: client.TopicPartition, bounds: Bounds) -> Iterator[tuple[list[Record], int]]:
        self.consumer.assign([tp])
        self.consumer.seek(tp, bounds.start)
        position, moved = bounds.start, time.monotonic()
        while position < bounds.end:
            records = _poll(self.consumer, self.topic, self.topic_id, 500).get(tp, ())
            # Control records and compaction leave gaps: the position decides, not the last record seen.
            reached = min(self.consumer.position(tp, timeout_ms=ANSWER_MS), bounds.end)
            if reached > position:
                moved = time.monotonic()
            elif time.monotonic() - moved > TIMEFRAME_QUIET:
                # The client's poll() never says that the broker is away; this does.
                self.consumer.end_offsets([tp], timeout_ms=ANSWER_MS)
                moved = time.monotonic()
            position = reached
            inside = [r for r in records if r.offset < bounds.end and self.since <= r.timestamp < self.until]
            yield inside, position


def _offset(first: client.OffsetAndTimestamp | None, end: int) -> int:
    return min(first.offset, end) if first else end
