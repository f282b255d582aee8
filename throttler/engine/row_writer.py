"""Rows and letters on their way to the store: gathered in order while those before are written, and what it refuses."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from typing import Any

from django.conf import settings
from django.db import transaction

from config.kafka import Record, RecordBatch, Replayed, topic_name
from config.kafka.consumer.writer import Writer
from config.kafka.positions import LogEnd, Mark, TopicPartition
from outbox.letters.burial import Letter, LetterHandler, bury
from throttler.engine.decisions import SOURCE, Decoded
from throttler.engine.partition import OwnedPartition, Unstored
from throttler.lanes.state import LaneState
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

    def __init__(self, store: OverflowStore, in_database: bool | None = None) -> None:
        self.store, self.in_database = store, store.in_database if in_database is None else in_database
        self.refused: SimpleQueue[OverflowRow] = SimpleQueue()

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


def writers_of(handler: RowHandler) -> tuple[Writer, Writer | None]:
    """The writer of rows, and that of letters where rows do not need the relational database."""
    group = topic_name(GROUP)
    rows = Writer(handler, NoPositions(), group)
    if handler.in_database:
        return rows, None
    return rows, Writer(RowHandler(handler.store, in_database=True), NoPositions(), group)


class NoPositions:
    """The throttler's positions are Kafka's own: its writer stores no watermarks."""

    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]:
        return {}

    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None: ...
    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None: ...
    def reach(self, group: str, reached: Mapping[TopicPartition, LogEnd], now: datetime) -> None: ...


# -- Gathered while those before are written -----------------------------------------------------------------
MOST = 2000  # records after which a transaction of the database is full


class WriterQueue:
    """What waits for one writer. What one round decided has one number, which the writer reports when it is stored."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.number = 0
        self._waiting: deque[tuple[int, list[ToStore]]] = deque()

    def put(self, records: Iterable[ToStore]) -> list[tuple[int, Unstored]]:
        """Take over what one round decided; returns each partition's share of it, as a batch that is not stored."""
        shares: dict[int, list[ToStore]] = {}
        for record in records:
            shares.setdefault(record.partition, []).append(record)
        self.number += bool(shares)
        return [(number, self._put(share)) for number, share in shares.items()]

    def _put(self, share: list[ToStore]) -> Unstored:
        share.sort(key=lambda record: record.offset)
        self._waiting.append((self.number, share))
        lanes = Counter(record.row.customer_id for record in share if record.row)
        return Unstored(self.number, share[0].offset, share[-1].offset, lanes, len(share) - lanes.total())

    def push(self) -> None:
        """Give the writer what waits, if it is free."""
        if not self._waiting or self.writer.busy:
            return
        upto, records, size = 0, list[ToStore](), 0
        while self._waiting and (not records or (len(records) < MOST and size < settings.KAFKA_POLL_BYTES)):
            upto, share = self._waiting.popleft()
            records += share
            size += sum(len(record.value or b"") for record in share)
        # The same round's rest is in the next batch: this one then proves only the round before.
        if self._waiting and self._waiting[0][0] == upto:
            upto -= 1
        self.writer.submit(RecordBatch(records, {}), upto, timeout=1.0)

    def finished(self) -> int:
        """The number up to which everything is stored; 0: nothing new."""
        upto = 0
        while not self.writer.done.empty():
            upto = max(upto, self.writer.done.get().sequence)
        return upto

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self.writer.busy

    def drop(self, gone: set[int]) -> None:
        """Forget what waits of partitions that are no longer ours; what the writer has in hand does no harm."""
        self._waiting = deque((number, kept) for number, kept in self._waiting if kept[0].partition not in gone)


class WriteBehind:
    """Hands rows and letters to their writers. Only the owner's thread calls it, and it never waits.

    Where rows are stored in the relational database, one writer stores both. Otherwise letters have `letters`, so that
    rows do not wait for a database that they do not need.
    """

    def __init__(self, writer: Writer, letters: Writer | None = None) -> None:
        self._rows = WriterQueue(writer)
        self._letters = WriterQueue(letters) if letters else None
        self._all = [self._rows, self._letters] if self._letters else [self._rows]

    def take(
        self, rows: Iterable[tuple[Decoded, OverflowRow]], letters: Iterable[tuple[Decoded, Letter]],
        parts: Mapping[int, OwnedPartition],
    ) -> None:  # fmt: skip
        """Take over rows and letters; from now on they hold the committed offsets back, and rows the drain."""
        stored = [ToStore.of(decoded.record, row=row) for decoded, row in rows]
        buried = [ToStore.of(decoded.record, letter=letter) for decoded, letter in letters]
        if self._letters:
            for number, batch in self._letters.put(buried):
                parts[number].unburied.append(batch)
            buried = []
        for number, batch in self._rows.put([*stored, *buried]):
            parts[number].unstored.append(batch)

    def push(self) -> None:
        """Give the writers what waits, where they are free."""
        for waiting in self._all:
            waiting.push()

    def note_stored(self, parts: Iterable[OwnedPartition]) -> None:
        """Let partitions know what is stored now."""
        rows, letters = self._rows.finished(), self._letters.finished() if self._letters else 0
        for part in parts if rows or letters else ():
            part.stored(rows, letters)

    @property
    def busy(self) -> bool:
        return any(waiting.busy for waiting in self._all)

    @property
    def answers_soon(self) -> bool:
        """Whether something is being stored: while all that waits is for who is away, nobody need look every moment."""
        return any(waiting.busy and not waiting.writer.waiting for waiting in self._all)

    @property
    def store_is_away(self) -> bool:
        return bool(self._rows.writer.waiting)

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget what waits of partitions that are no longer ours."""
        for waiting in self._all:
            waiting.drop(set(partitions))

    def close(self, patience: float) -> None:
        """Abandon what is not stored after `patience` seconds, also where the server hangs."""
        for waiting in self._all:
            waiting.writer.close(patience, join=patience)


class Refusals:
    """Rows that the store would not take, which are letters now: their lanes wait for them no longer."""

    def __init__(self, refused: SimpleQueue[OverflowRow]) -> None:
        self._refused = refused
        self._rows: dict[tuple[int, int], OverflowRow] = {}

    def round(self, parts: Mapping[int, OwnedPartition]) -> list[tuple[OwnedPartition, LaneState]]:
        """Take off their lanes what is stored as a letter since; returns the lanes.

        In the very round in which the offset to commit passes a row: who takes over before that stores it, has it
        refused and takes it off its lane once more.
        """
        while not self._refused.empty():
            row = self._refused.get()
            self._rows[row.partition, row.offset] = row
        changed = []
        for place, row in list(self._rows.items()):
            part = parts.get(row.partition)
            if part and row.offset > part.stored_upto():
                continue
            del self._rows[place]
            lane = part.lanes.get(row.customer_id) if part else None
            if part and lane and lane.waits_for(row.offset):
                lane.lose(1)
                part.totals["refused"] += 1
                changed.append((part, lane))
        return changed
