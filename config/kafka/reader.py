"""Read a topic once, from one offset to another, without a group and without committing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from config.kafka import client, internals
from config.kafka.positions import TopicPartition

PATIENCE_MS = 3000  # of a person who waits for a page


class Reader:
    """A topic's ends when it was opened, its id, and its records up to those ends."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.consumer = client.new_consumer(None, auto_offset_reset="earliest")
        partitions = self.consumer.partitions_for_topic(topic) or ()
        self.tps = [client.TopicPartition(topic, number) for number in sorted(partitions)]
        self.topic_id = internals.topic_id_of(self.consumer, topic)
        self.begins = self.consumer.beginning_offsets(self.tps)
        self.ends = _ends_of_the_log(self.tps)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.consumer.close(autocommit=False)

    @property
    def total(self) -> int:
        """How many offsets there are between begin and end."""
        return sum(self.ends[tp] - self.begins[tp] for tp in self.tps)

    def marks(self) -> Mapping[TopicPartition, int]:
        return {(tp.topic, tp.partition): end for tp, end in self.ends.items()}

    def batches(self) -> Iterator[Sequence[Any]]:
        """Every record below the ends seen at the start, some thousand at a time."""
        waiting = {tp for tp in self.tps if self.begins[tp] < self.ends[tp]}
        self.consumer.assign(list(waiting))
        for tp in waiting:
            self.consumer.seek(tp, self.begins[tp])
        while waiting:
            found = self.consumer.poll(timeout_ms=500)
            for tp, records in found.items():
                part = [record for record in records if record.offset < self.ends[tp]]
                if part:
                    yield part
            # Control records and compaction leave gaps: the position decides, not the last record seen.
            done = {tp for tp in waiting if self.consumer.position(tp) >= self.ends[tp]}
            if done:
                self.consumer.pause(*done)
                waiting -= done


def _ends_of_the_log(tps: Sequence[Any]) -> dict[Any, int]:
    """The ends as a reader of uncommitted records sees them: those of a committed reader lie before the oldest open
    transaction, whoever left it open, and what others have committed behind it would be missed."""
    consumer = client.new_consumer(None, isolation_level="read_uncommitted")
    try:
        return dict(consumer.end_offsets(tps))
    finally:
        consumer.close(autocommit=False)


def record_at(topic: str, partition: int, offset: int) -> Any | None:
    """The record at a position; None if the log holds none there. KafkaError after a few seconds without an answer."""
    consumer = client.new_consumer(None, bootstrap_timeout_ms=PATIENCE_MS)
    try:
        tp = client.TopicPartition(topic, partition)
        if partition not in (consumer.partitions_for_topic(topic) or ()):
            return None
        begin = consumer.beginning_offsets([tp], timeout_ms=PATIENCE_MS)[tp]
        if not begin <= offset < consumer.end_offsets([tp], timeout_ms=PATIENCE_MS)[tp]:
            return None
        consumer.assign([tp])
        consumer.seek(tp, offset)
        found = consumer.poll(timeout_ms=PATIENCE_MS).get(tp, ())
        return next((record for record in found if record.offset == offset), None)
    finally:
        consumer.close(autocommit=False)


def committed_offsets(group: str, topic: str) -> dict[TopicPartition, int]:
    """The offsets a group has committed and the log still holds, read without joining the group."""
    consumer = client.new_consumer(group)
    try:
        tps = [client.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        ends = consumer.end_offsets(tps, timeout_ms=10_000)
        found = {tp: consumer.committed(tp, timeout_ms=10_000) for tp in tps}
    finally:
        consumer.close(autocommit=False)
    return {(tp.topic, tp.partition): min(offset, ends[tp]) for tp, offset in found.items() if offset is not None}
