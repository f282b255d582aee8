"""The state of a lane: a customer in a partition, how far their messages have come, and what they may still send.

What a lane has buffered is exactly its valid input in (drained, seen]; tests/throttler/lanes/test_model.py tries it.
"""

from __future__ import annotations

from datetime import date

from throttler.limits.limiter import LimiterState


class LaneState:
    """What the owner of a partition remembers of one customer in it; offsets are those of the input.

    `waits` counts the rows of the backlog that the store does not have yet: the drain stays below them.
    """

    __slots__ = (
        "backlog", "changed", "customer", "day", "drained", "first", "limiter", "misplaced", "seen", "waits",
    )  # fmt: skip

    def __init__(self, customer: str) -> None:
        self.customer = customer
        self.limiter = LimiterState()
        self.first = self.backlog = self.waits = 0
        self.drained = self.seen = -1
        self.day: date | None = None  # of the oldest row
        self.changed = False  # the transaction in hand has to log it
        self.misplaced: bool | None = None  # whether the customer belongs to another partition; None: not looked at

    def waits_for(self, offset: int) -> bool:
        """Whether a record that was decided before is one of the backlog: it is stored again, which changes nothing."""
        return self.backlog > 0 and self.drained < offset <= self.seen

    def buffer(self, offset: int, day: date) -> None:
        """A new message joins the backlog. Rows that an aborted attempt left lie below `first` and are never read."""
        if not self.backlog:
            self.first, self.drained, self.day = offset, offset - 1, day
        self.backlog += 1
        self.seen = offset

    def leave(self, offset: int) -> None:
        """The oldest message has left, expired, or been given up."""
        self.drained = offset
        self.lose(1)

    def lose(self, count: int) -> None:
        """So many of those that wait do so no more, wherever they stood."""
        self.backlog -= count
        if not self.backlog:
            self.drained, self.day = self.seen, None
