"""Records and batches as they travel from Kafka to a handler."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from config.kafka.positions import Mark, TopicPartition


class Record(Protocol):
    """What a handler may read of a record; the client's own object fits, so nothing is copied per record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True)
class Replayed:
    """A record that is handled again, at its original position."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass
class Tally:
    """How a handler's `write` counted a replayed batch; records in none of the counts were stored before."""

    applied: int = 0
    parked: int = 0  # letters that were not there before
    outside: int = 0  # older than what the flow keeps
    changed: Mapping[Hashable, Sequence[Record]] = field(default_factory=dict)  # by key of `keys_of`


@dataclass
class RecordBatch:
    """Records of one poll, in offset order within each partition; `prepared` is the handler's own decoding."""

    records: Sequence[Record]
    topic_ids: dict[str, str]
    prepared: Any = None
    revision: int = 0  # 0 straight from Kafka; replays count up
    from_log: bool = False  # read again from the topic, not sent back from a dead letter
    tally: Tally = field(default_factory=Tally)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.records:
            self.ends[record.topic, record.partition] = record.offset + 1

    @property
    def letter_revision(self) -> int:
        """The revision in a dead letter's key: 0 for records from the topic, so that reading them again adds none."""
        return 0 if self.from_log else self.revision

    @property
    def marks(self) -> dict[TopicPartition, Mark]:
        """The positions after this batch."""
        return {
            (topic, partition): Mark(self.topic_ids.get(topic, ""), end)
            for (topic, partition), end in self.ends.items()
        }

    def halves(self) -> Iterator[RecordBatch]:
        """Two batches with the same records in the same order."""
        middle = len(self.records) // 2
        for part in (self.records[:middle], self.records[middle:]):
            yield RecordBatch(part, self.topic_ids, revision=self.revision, from_log=self.from_log)


def cut(records: Sequence[Record], most_bytes: int) -> Iterator[Sequence[Record]]:
    """Split a poll so that no statement grows beyond what a server takes as one packet."""
    start = size = 0
    for index, record in enumerate(records):
        length = len(record.value or b"")
        if size + length > most_bytes and index > start:
            yield records[start:index]
            start, size = index, 0
        size += length
    if start < len(records):
        yield records[start:]
