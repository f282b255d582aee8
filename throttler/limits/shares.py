"""The output rate of all, divided among the owners by demand: what each may act on, and its limiter; pure, in ints.

A report of second k counts in second k + 2 and in no other, so that all who use it had time to see it. Owners without
a report keep the part of their partitions. Whoever cannot know what others made of its report takes the lesser part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from throttler.limits.rate import RateWindow

PARTS = 1_000_000
BURST_US = 50_000


@dataclass(frozen=True, slots=True)
class DemandReport:
    """What an owner said in one second: the weight of its due lanes, and how many partitions it owns."""

    owner: str
    demand: int
    partitions: int


def alone(owned: int, partitions: int) -> int:
    """The share, in millionths, of an owner that has reported nothing for this second."""
    return owned * PARTS // partitions


def agreed(reports: Iterable[DemandReport], owner: str, owned: int, partitions: int, *, sure: bool) -> int:
    """The share, in millionths, by the reports of the second before the last.

    Not `sure`: our report was written so late that others may have missed it.
    """
    known = {report.owner: report for report in reports}
    mine = known.get(owner)
    if mine is None:
        return alone(owned, partitions)
    # Nobody's demand is nothing: what comes in a moment should not wait for the next second.
    total = sum(max(report.demand, 1) for report in known.values())
    spoken = min(sum(report.partitions for report in known.values()), partitions)
    share = PARTS * spoken * max(mine.demand, 1) // (partitions * total)
    return share if sure else min(share, alone(min(owned, mine.partitions), partitions))


class OutputLimiter:
    """This owner's share of the output rate; saves up 50 ms and one message, never more."""

    def __init__(self, rate: RateWindow, now_us: int, share: int = 0) -> None:
        self.rate, self.share, self._now, self._credit = rate, share, now_us, 0
        self._cost = rate.period_us * PARTS

    def set_share(self, share: int, now_us: int) -> None:
        """In millionths; what was earned until now was earned at the old share."""
        self._earn(now_us)
        self.share = share

    def allowance(self, now_us: int) -> int:
        self._earn(now_us)
        return max(self._credit // self._cost, 0)

    def spend(self, count: int) -> None:
        self._credit -= count * self._cost

    def _earn(self, now_us: int) -> None:
        speed = self.rate.limit * self.share
        earned = max(now_us - self._now, 0) * speed
        self._now = now_us
        self._credit = min(self._credit + earned, self._cost + BURST_US * speed)
