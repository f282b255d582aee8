"""Where a partition starts and when it must not: pure rules over (topic id, partition, offset)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

TopicPartition = tuple[str, int]  # the client's own type is such a tuple, too


@dataclass(frozen=True)
class Mark:
    """The next offset to read of a partition, and the id of the topic that the offset belongs to."""

    topic_id: str
    next_offset: int


@dataclass(frozen=True)
class Passed(Mark):
    """The client's position. From `since`, where the last record ended or reading began, up to it the log held none."""

    since: int


@dataclass(frozen=True)
class LogEnd:
    """The log's end at one moment, and the database time at which everything below it was written.

    `passed` is then the client's position: a log may end with the mark of a transaction, or with an aborted one, and
    the client gives no record for either.
    """

    end_offset: int
    caught_up_at: datetime | None
    passed: Passed | None = None


@dataclass(frozen=True)
class Log:
    """What the broker says of a partition."""

    topic_id: str
    begin: int
    end: int
    committed: int | None


@dataclass(frozen=True)
class Start:
    """Read from here. `accepts` is the alarm of a reset that an operator has asked for, "" as a rule."""

    offset: int
    warning: str = ""
    accepts: str = ""


@dataclass(frozen=True)
class Stopped:
    """Do not read until an operator accepts the loss or the change."""

    alarm: str


class Positions(Protocol):
    """The store of watermarks; a model of the layer above, handed in."""

    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]: ...
    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None: ...
    def reach(self, group: str, reached: Mapping[TopicPartition, LogEnd], now: datetime) -> None: ...


def start_of(mark: Mark | None, log: Log) -> Start | Stopped:
    """Decide where to start.

    The smaller of committed offset and watermark wins: a database restored from a backup remembers less
    than Kafka and must read the gap again; reading too much is harmless, every write is guarded by position.
    """
    if mark is None:
        warning = ""
        if log.committed is not None and log.committed > log.begin:
            warning = "the group has committed offsets, this database has none: reading from the beginning"
        return Start(log.begin, warning)
    if mark.topic_id and log.topic_id and mark.topic_id != log.topic_id:
        return Stopped(
            "the topic was deleted and created again (its id changed): check what is in it, "
            "then start with --accept-reset to read it from the beginning"
        )
    offset = mark.next_offset if log.committed is None else min(mark.next_offset, log.committed)
    if log.committed is not None and log.committed < log.begin <= mark.next_offset:
        offset = mark.next_offset
    if offset < log.begin:
        return Stopped(
            f"offsets {offset} to {log.begin - 1} are no longer in the log: "
            "start with --accept-reset to go on without them"
        )
    if offset > log.end:
        return Stopped(
            f"the log ends at {log.end}, but {offset} was already read: it was truncated or created again; "
            "start with --accept-reset to read it from the beginning"
        )
    return Start(offset)


def of_one_topic(
    marks: Mapping[TopicPartition, Mark], logs: Mapping[TopicPartition, Log]
) -> dict[TopicPartition, Mark]:
    """Marks in which a partition without a topic id takes that of the topic's other partitions.

    A partition that was always empty never stored an id; a topic is created again with all its partitions.
    """
    result = dict(marks)
    for tp, log in logs.items():
        known = {mark.topic_id for (topic, _), mark in marks.items() if topic == tp[0] and mark.topic_id}
        mark = marks.get(tp)
        if known and log.topic_id not in known and (mark is None or not mark.topic_id):
            result[tp] = Mark(min(known), mark.next_offset if mark else 0)
    return result


def gap_end(mark: Mark | None, log: Log) -> int | None:
    """The committed offset if the watermark is behind it: the database was restored from a backup, or emptied."""
    known = log.begin if mark is None else mark.next_offset
    # A log that was cut off ends before it: what is not there closes no gap.
    end = log.committed and min(log.committed, log.end)
    return end if end is not None and known < end else None
