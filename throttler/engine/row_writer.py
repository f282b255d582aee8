"""Stores overflow rows and dead letters through Kafka's writers: reruns, waits and bisection are their own."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from config.kafka import Record, RecordBatch, Replayed, topic_name
from config.kafka.consumer.writer import Writer
from config.kafka.positions import LogEnd, Mark, TopicPartition
from outbox.letters.burial import Letter, LetterHandler, bury
from throttler.engine.decisions import SOURCE
from throttler.messages import id_in
from throttler.overflow.store import OverflowRow, OverflowStore

GROUP = "throttler"
LOST = "lost"  # the step of a letter that stands for messages which neither the store nor the log has


@dataclass(frozen=True)
class ToStore(Replayed):
    """A record on its way to the database as a row or as a letter."""

    row: OverflowRow | None = None
    letter: Letter | None = None

    @classmethod
    def of(cls, record: Record, row: OverflowRow | None = None, letter: Letter | None = None) -> ToStore:
        place = (record.topic, record.partition, record.offset, record.timestamp)
        return cls(*place, record.key, record.value, record.headers, row, letter)


class RowHandler(LetterHandler):
    """The handler of rows: into the store, with letters into their table where both are in one transaction.

    `refused` gives the rows that the store would not take: each is a letter now, and no longer in its lane.
    """

    name = source = SOURCE
    group = GROUP
    topics: list[str] = []

    def __init__(self, store: OverflowStore) -> None:
        self.store, self.in_database = store, store.in_database
        self.refused: queue.SimpleQueue[OverflowRow] = queue.SimpleQueue()

    def prepare(self, batch: RecordBatch) -> Sequence[object]:
        """The batch's records are ToStore already."""
        return batch.records

    def write(self, batch: RecordBatch, now: datetime) -> None:
        """Both are stored again without harm."""
        if rows := [record.row for record in batch.prepared if record.row]:
            self.store.store(rows)
        bury([record.letter for record in batch.prepared if record.letter], topic_name(self.group), now)

    def key_in(self, record: Any) -> str:
        return id_in(record.value)

    def park(self, batch: RecordBatch, record: Any, error: BaseException, trace: str, now: datetime) -> None:
        super().park(batch, record, error, trace, now)
        if row := record.row:  # it may still be rolled back, and parked again
            transaction.on_commit(lambda: self.refused.put(row))


class BurialHandler(RowHandler):
    """The handler of letters beside a store that is not in the database."""

    def __init__(self, store: OverflowStore) -> None:
        super().__init__(store)
        self.in_database = True


def writers_of(handler: RowHandler) -> tuple[Writer, Writer | None]:
    """The writer of rows, and that of letters where rows do not need the relational database."""
    group = topic_name(GROUP)
    rows = Writer(handler, NoPositions(), group)
    return rows, None if handler.in_database else Writer(BurialHandler(handler.store), NoPositions(), group)


class NoPositions:
    """The throttler's positions are Kafka's own: its writer stores no watermarks."""

    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]:
        return {}

    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None: ...
    def reach(self, group: str, reached: Mapping[TopicPartition, LogEnd], now: datetime) -> None: ...
