"""A partition that this process owns: its lanes, its position, and what the store does not have yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from throttler.lanes.restore import LATEST_US
from throttler.lanes.state import LaneState, PartitionRecord

# A record that is read takes one of five ways in; what was buffered leaves by one of five, or waits.
IN = ("live", "buffered", "expired_on_arrival", "parked", "forwarded")
OUT = ("drained", "expired", "purged", "lost", "refused")
PATHS = ("read", *IN, *OUT)
AGAIN = "parked_again"  # of "parked": what may have been a letter before a reset that went back


@dataclass
class Unstored:
    """A batch of rows and letters on its way to the database: its first offset holds the committed offset back."""

    number: int  # of the writer's job
    first: int  # offset
    last: int
    lanes: Counter[str] = field(default_factory=Counter)  # rows of each customer
    letters: int = 0

    @property
    def size(self) -> int:
        return self.lanes.total() + self.letters


class UnstoredBatches:
    """The batches of a partition that one writer has not stored yet, oldest first; `size` counts their records.

    While the store is away there are thousands of them, and the size is asked for in every round.
    """

    def __init__(self) -> None:
        self._batches: deque[Unstored] = deque()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def first(self) -> int:
        """The oldest offset; there must be one."""
        return self._batches[0].first

    def append(self, batch: Unstored) -> None:
        self._batches.append(batch)
        self.size += batch.size

    def take(self, number: int) -> Iterator[Unstored]:
        """Those up to this job, which are stored now."""
        while self._batches and self._batches[0].number <= number:
            batch = self._batches.popleft()
            self.size -= batch.size
            yield batch


@dataclass
class OwnedPartition:
    """State of one input partition; only the owner's thread touches it.

    `decided` is the first offset that no committed transaction has decided about; what comes again below it is
    neither counted nor sent twice. `read` is the first offset that has not come yet: after a start it is the committed
    one, and rows between it and `decided` may be missing in the store until they have come again.
    """

    number: int
    topic_id: str
    epoch: int
    decided: int
    committed: int
    read: int
    lanes: dict[str, LaneState] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    unstored: UnstoredBatches = field(default_factory=UnstoredBatches)
    unburied: UnstoredBatches = field(default_factory=UnstoredBatches)  # letters with a writer of their own
    late_us: int = 0  # how much later than the changelog says the messages of the last owner may have left
    expected_us: int = 0  # what the last owner's clock would show at the start; 0 where nobody knows
    decided_before: int = 0  # up to here all was decided once before a reset that went back
    touched: bool = False  # the next transaction carries its offset
    newly_stored: set[str] = field(default_factory=set)  # customers whose rows were stored since the last snapshot

    def write_off(self) -> None:
        """Its lanes are forgotten: what was buffered and has not left counts as lost. The next transaction says so."""
        if (waited := self.totals["buffered"] - sum(self.totals[name] for name in OUT)) > 0:
            self.totals["lost"] += waited
            self.touched = True

    @property
    def position(self) -> int:
        """The offset to commit: that of the oldest message which only this process remembers."""
        return min(self.stored_upto() + 1, self.unburied.first if self.unburied else self.read)

    @property
    def waiting(self) -> int:
        """Messages and letters that wait for the store."""
        return self.unstored.size + self.unburied.size

    def stepped_us(self, now: int) -> int:
        """How far the database's clock has gone forward by itself since the last owner's transaction; 0 as a rule."""
        stepped_us = now - self.expected_us if self.expected_us else 0
        return stepped_us if stepped_us > LATEST_US else 0

    def stored_upto(self) -> int:
        """The last offset of which every row below is in the store: batches of a partition are stored in order."""
        return (self.unstored.first if self.unstored else self.read) - 1

    def readable_upto(self, lane: LaneState) -> int:
        """Where a page of the lane ends: beyond `seen` lie rows that an aborted attempt left."""
        return min(lane.seen, self.stored_upto())

    def stored(self, number: int, letters: int = 0) -> None:
        """Batches up to this job are in the store; and, where letters have a writer of their own, up to that one."""
        for batch in self.unstored.take(number):
            for customer, rows in batch.lanes.items():
                if lane := self.lanes.get(customer):
                    lane.waits -= rows
                    self.newly_stored.add(customer)
        for _batch in self.unburied.take(letters):
            pass

    def record(self, began_us: int = 0) -> PartitionRecord:
        """What the changelog says of the partition when the transaction in hand, begun then, is committed."""
        totals, before = dict(self.totals), self.decided_before
        return PartitionRecord(self.topic_id, self.position, self.decided, totals, began_us, before)

    def pass_to(self, position: int) -> None:
        """What lies below is read: the marks of transactions, or what was aborted, moves the offset as records do."""
        if position > self.read:
            self.read, self.decided, self.touched = position, max(self.decided, position), True

    def backlogged(self) -> Iterable[LaneState]:
        return (lane for lane in self.lanes.values() if lane.backlog)
