"""The state of a lane: a customer in a partition, how far their messages have come, and what they may still send; and how it is logged.

What a lane has buffered is exactly its valid input in (drained, seen]; tests/throttler/lanes/test_schedules.py tries it.
"""

from __future__ import annotations

from datetime import date

import msgspec

from throttler.limits.limiter import LimiterState, from_plain, to_plain


class LaneState:
    """What the owner of a partition remembers of one customer in it; offsets are those of the input.

    `waits` counts the rows of the backlog that the store does not have yet: the drain stays below them. Pages are read
    from `day` on, so no row may have an earlier day than one before it: a clock that went back over midnight gives none.
    """

    __slots__ = (
        "backlog", "changed", "customer", "day", "drained", "first", "limiter", "misplaced", "newest", "seen", "waits",
    )  # fmt: skip

    def __init__(self, customer: str) -> None:
        self.customer = customer
        self.limiter = LimiterState()
        self.first = self.backlog = self.waits = 0
        self.drained = self.seen = -1
        self.day: date | None = None  # of the oldest row
        self.newest: date | None = None  # the day of the newest row
        self.changed = False  # the transaction in hand has to log it
        self.misplaced: bool | None = None  # whether the customer belongs to another partition; None: not looked at

    def waits_for(self, offset: int) -> bool:
        """Whether a record that was decided before is one of the backlog: it is stored again, which changes nothing."""
        return self.backlog > 0 and self.drained < offset <= self.seen

    def buffer(self, offset: int, today: date) -> date:
        """A new message joins the backlog; returns the day of its row.

        Rows that an aborted attempt left lie below `first` and are never read.
        """
        if not self.backlog:
            self.first, self.drained, self.day = offset, offset - 1, today
        self.newest = max(today, self.newest or today)
        self.backlog += 1
        self.seen = offset
        return self.newest

    def reach(self, day: date) -> None:
        """The oldest row is of this day now; it may be a later one than it was given, where that is gone."""
        self.day = day
        self.newest = max(day, self.newest or day)

    def leave(self, offset: int) -> None:
        """The oldest message has left, expired, or been given up."""
        self.drained = offset
        self.lose(1)

    def lose(self, count: int) -> None:
        """So many of those that wait do so no more, wherever they stood."""
        self.backlog -= count
        if not self.backlog:
            self.drained, self.day, self.newest = self.seen, None, None


# -- The compacted changelog: one record a lane, and one a partition under a key that no customer can have ----
PARTITION_KEY = b"\x00partition"  # the gate refuses customers with U+0000
CHANGELOG = "notifications-changelog"


class LaneRecord(msgspec.Struct):
    """A lane as it is logged. `epoch` is the generation of the owner that wrote it."""

    epoch: int
    topic_id: str
    first: int
    drained: int
    seen: int
    backlog: int
    day: date | None
    tat: list[int]
    quota: list[list[int]]
    newest: date | None = None  # None: of a lane without a backlog, or written by an earlier release


class PartitionRecord(msgspec.Struct):
    """A partition as it is logged in each transaction that touches it.

    `position` is the offset that the same transaction committed, `decided` the first offset nothing was decided about:
    they differ while messages wait for the store. A record below `decided` that comes again is neither counted nor sent
    again (docs/adr/0023). `totals` counts everything below `decided`. `began` is when the transaction's first message
    was decided, in microseconds; the broker's timestamp tells how much later its messages left. `decided_before`: up to
    here everything was decided once before a reset that went back, 0 as a rule.
    """

    topic_id: str
    position: int
    decided: int
    totals: dict[str, int]
    began: int = 0
    decided_before: int = 0


_encoder = msgspec.json.Encoder()
_lane = msgspec.json.Decoder(LaneRecord)
_partition = msgspec.json.Decoder(PartitionRecord)


def lane_bytes(lane: LaneState, epoch: int, topic_id: str) -> bytes:
    """The record of a lane."""
    tat, quota = to_plain(lane.limiter)
    return _encoder.encode(
        LaneRecord(
            epoch, topic_id, lane.first, lane.drained, lane.seen, lane.backlog, lane.day, tat, quota, lane.newest
        )
    )


def lane_record_from(value: bytes) -> LaneRecord:
    """What was logged of a lane; raises msgspec.DecodeError."""
    return _lane.decode(value)


def lane_of(customer: str, record: LaneRecord) -> LaneState:
    """The lane a record describes; every row of its backlog is in the store."""
    lane = LaneState(customer)
    lane.first, lane.drained, lane.seen = record.first, record.drained, record.seen
    lane.backlog, lane.day, lane.newest = record.backlog, record.day, record.newest or record.day
    lane.limiter = from_plain(record.tat, record.quota)
    return lane


def partition_bytes(record: PartitionRecord) -> bytes:
    """The record of a partition."""
    return _encoder.encode(record)


def partition_from(value: bytes) -> PartitionRecord:
    """The partition a record describes; raises msgspec.DecodeError."""
    return _partition.decode(value)
