"""Rows and letters on their way to the database: in order, gathered while the one before is stored."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from django.conf import settings

from config.kafka import RecordBatch
from config.kafka.runtime.writer import Writer
from outbox.letters.burial import Letter
from throttler.live.decide import Decoded
from throttler.live.partition import OwnedPartition, Unstored
from throttler.live.storing import Stowed
from throttler.overflow.store import OverflowRow

MOST = 2000  # records after which a transaction of the database is full


class Stowing:
    """Hands rows and letters to the writer. Only the owner's thread calls it, and it never waits.

    What one round decided has one number; `Unstored` of each partition carries it until the writer has said that it
    is in the database.
    """

    def __init__(self, writer: Writer, topic_ids: Mapping[str, str]) -> None:
        self.writer, self.topic_ids = writer, topic_ids
        self.number = 0
        self._waiting: deque[tuple[int, list[Stowed]]] = deque()

    def take(
        self, rows: Iterable[tuple[Decoded, OverflowRow]], letters: Iterable[tuple[Decoded, Letter]],
        parts: Mapping[int, OwnedPartition],
    ) -> None:  # fmt: skip
        """Take over rows and letters; from now on they hold the committed offsets and the drain back."""
        found: dict[int, list[Stowed]] = {}
        for decoded, row in rows:
            found.setdefault(row.partition, []).append(Stowed.of(decoded.record, row=row))
        for decoded, letter in letters:
            found.setdefault(decoded.record.partition, []).append(Stowed.of(decoded.record, letter=letter))
        if not found:
            return
        self.number += 1
        for number, stowed in found.items():
            stowed.sort(key=lambda one: one.offset)
            lanes = Counter(one.row.customer_id for one in stowed if one.row)
            parts[number].unstored.append(
                Unstored(self.number, stowed[0].offset, stowed[-1].offset, lanes, len(stowed) - lanes.total())
            )
            self._waiting.append((self.number, stowed))

    def push(self) -> None:
        """Give the writer what waits, if it is free."""
        if not self._waiting or self.writer.busy:
            return
        upto, records, size = 0, list[Stowed](), 0
        while self._waiting and (not records or (len(records) < MOST and size < settings.KAFKA_POLL_BYTES)):
            upto, stowed = self._waiting.popleft()
            records += stowed
            size += sum(len(one.value or b"") for one in stowed)
        # The same round's rest is in the next batch: this one then proves only the round before.
        if self._waiting and self._waiting[0][0] == upto:
            upto -= 1
        self.writer.submit(RecordBatch(records, dict(self.topic_ids)), upto, timeout=1.0)

    def finished(self) -> int:
        """The number up to which everything is in the database; 0: nothing new."""
        upto = 0
        while not self.writer.done.empty():
            upto = max(upto, self.writer.done.get().sequence)
        return upto

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or self.writer.busy

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget what waits of partitions that are no longer ours; what the writer has in hand does no harm."""
        gone = set(partitions)
        self._waiting = deque((number, kept) for number, kept in self._waiting if kept[0].partition not in gone)


def refused(row: OverflowRow, part: OwnedPartition | None) -> bool:
    """The store would not take a row, which is a letter now: it is no longer waited for. False: not ours any more."""
    lane = part.lanes.get(row.customer_id) if part else None
    if part is None or lane is None or not lane.waits_for(row.offset):
        return False
    lane.lose(1)
    part.totals["refused"] += 1
    return True
