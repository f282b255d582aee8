"""A partition that this process owns: its lanes, its position, and what the store does not have yet."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from throttler.lanes.changelog import PartitionRecord
from throttler.lanes.lane import LaneState

# A record that is read takes one of five ways in; what was buffered leaves by one of five, or waits.
IN = ("live", "buffered", "expired_on_arrival", "parked", "forwarded")
OUT = ("drained", "expired", "purged", "lost", "refused")
PATHS = ("read", *IN, *OUT)


@dataclass
class Unstored:
    """A batch of rows and letters on its way to the database: its first offset holds the committed offset back."""

    number: int  # of the writer's job
    first: int  # offset
    last: int
    lanes: Counter[str] = field(default_factory=Counter)  # rows of each customer
    letters: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.lanes.total() + self.letters


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
    unstored: deque[Unstored] = field(default_factory=deque)
    touched: bool = False  # the next transaction carries its offset

    @property
    def position(self) -> int:
        """The offset to commit: that of the oldest message which only this process remembers."""
        return self.unstored[0].first if self.unstored else self.read

    @property
    def waiting(self) -> int:
        """Messages and letters that wait for the store."""
        return sum(batch.size for batch in self.unstored)

    def stored_upto(self) -> int:
        """The last offset of which every row below is in the store: batches of a partition are stored in order."""
        return self.position - 1

    def readable_upto(self, lane: LaneState) -> int:
        """Where a page of the lane ends: beyond `seen` lie rows that an aborted attempt left."""
        return min(lane.seen, self.stored_upto())

    def stored(self, number: int) -> bool:
        """Batches up to this job are in the store; False when nothing of this partition was among them."""
        before = len(self.unstored)
        while self.unstored and self.unstored[0].number <= number:
            for customer, rows in self.unstored.popleft().lanes.items():
                if lane := self.lanes.get(customer):
                    lane.waits -= rows
        return len(self.unstored) < before

    def record(self) -> PartitionRecord:
        """What the changelog says of the partition when the transaction in hand is committed."""
        return PartitionRecord(self.topic_id, self.position, self.decided, dict(self.totals))

    def backlogged(self) -> Iterable[LaneState]:
        return (lane for lane in self.lanes.values() if lane.backlog)
