"""Rows and letters on their way to the store, in order, gathered while those before are written."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from queue import SimpleQueue

from django.conf import settings

from config.kafka import RecordBatch
from config.kafka.consumer.writer import Writer
from outbox.letters.burial import Letter
from throttler.engine.decisions import Decoded
from throttler.engine.partition import OwnedPartition, Unstored
from throttler.engine.row_writer import ToStore
from throttler.lanes.state import LaneState
from throttler.overflow.store import OverflowRow

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

    def push(self, topic_ids: Mapping[str, str]) -> None:
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
        self.writer.submit(RecordBatch(records, dict(topic_ids)), upto, timeout=1.0)

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

    def __init__(self, writer: Writer, topic_ids: Mapping[str, str], letters: Writer | None = None) -> None:
        self.topic_ids = topic_ids
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
            waiting.push(self.topic_ids)

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
        return self._rows.writer.waiting

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
