"""Five-minute rows of a customer as a line in time: what arrived, what left, what waited, how old it was. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from throttler.lanes.models import CustomerPeriod

CHARTED = timedelta(hours=12)
PERIOD = timedelta(minutes=5)
RECENT = timedelta(minutes=10)
MINUTES = 5


@dataclass(frozen=True)
class FiveMinutes:
    """What happened in five minutes, over all partitions; the last one may not be over. `length` in seconds."""

    start: datetime
    length: float
    live: int = 0
    buffered: int = 0
    drained: int = 0
    expired: int = 0
    backlog: int = 0

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.length)

    @property
    def arrived(self) -> float:
        """A second."""
        return (self.live + self.buffered) / self.length

    @property
    def sent(self) -> float:
        """A second."""
        return (self.live + self.drained) / self.length


@dataclass(frozen=True)
class Timeline:
    """The periods of a day at most, oldest first, without holes."""

    periods: Sequence[FiveMinutes]
    now: datetime

    @classmethod
    def of(cls, rows: Sequence[CustomerPeriod], now: datetime) -> Timeline:
        """From rows in any order, one for each partition and period."""
        if not rows:
            return cls((), now)
        first, last = min(row.start for row in rows), max(start_of(now), max(row.start for row in rows))
        sums: dict[datetime, list[CustomerPeriod]] = {}
        for row in rows:
            sums.setdefault(row.start, []).append(row)
        found: list[FiveMinutes] = []
        start = first
        while start <= last:
            found.append(_period(start, sums.get(start, ()), found[-1].backlog if found else 0, now))
            start += PERIOD
        return cls(tuple(found), now)

    @property
    def charted(self) -> Sequence[FiveMinutes]:
        """The last twelve hours, from when the customer first went over the rate."""
        return [one for one in self.periods if one.start >= self.now - CHARTED]

    @property
    def recent(self) -> Sequence[FiveMinutes]:
        """The last ten to fifteen minutes."""
        return [one for one in self.periods if one.start >= start_of(self.now - RECENT)]

    @property
    def arriving(self) -> float | None:
        """Messages a second of late; None: nobody measured."""
        return _average(self.recent, "live", "buffered")

    @property
    def sent(self) -> float | None:
        """Messages a second that left of late."""
        return _average(self.recent, "live", "drained")

    @property
    def growth(self) -> float:
        """Messages a minute by which the backlog grew of late; negative: it shrank."""
        seconds = sum(one.length for one in self.recent)
        grown = sum(one.buffered - one.drained - one.expired for one in self.recent)
        return grown * 60 / seconds if seconds else 0.0

    @property
    def expired_today(self) -> int:
        return sum(one.expired for one in self.periods if one.start.date() == self.now.date())

    @property
    def went_over(self) -> datetime | None:
        """When the first message of this line went into the buffer."""
        return next((one.start for one in self.periods if one.buffered), None)

    def ages(self) -> list[float | None]:
        """The age of the oldest message at the end of each charted period, in seconds; None: older than these rows.

        What waits is the newest of what was buffered, since they leave in order.
        """
        sums = [0, *accumulate(one.buffered for one in self.periods)]
        ends = range(len(self.periods) - len(self.charted), len(self.periods))
        return [self._age(end, sums) for end in ends]

    def _age(self, end: int, sums: Sequence[int]) -> float | None:
        last = self.periods[end]
        gone = sums[end + 1] - last.backlog  # how many of those buffered in this line had left by then
        if gone < 0 or not last.backlog:
            return None if last.backlog else 0.0
        at = bisect_right(sums, gone, 0, end + 1) - 1
        found = self.periods[at]
        sent = found.start + timedelta(seconds=found.length * (gone - sums[at]) / found.buffered)
        return (last.end - sent).total_seconds()


def start_of(moment: datetime) -> datetime:
    """When the five minutes around a moment began."""
    return moment.replace(minute=moment.minute - moment.minute % MINUTES, second=0, microsecond=0)


def _period(start: datetime, rows: Sequence[CustomerPeriod], before: int, now: datetime) -> FiveMinutes:
    length = min(PERIOD, max(now - start, timedelta(seconds=1))).total_seconds()
    if not rows:
        return FiveMinutes(start, length, backlog=before)
    names = ("live", "buffered", "drained", "expired", "backlog")
    return FiveMinutes(start, length, *(sum(getattr(row, name) for row in rows) for name in names))


def _average(periods: Sequence[FiveMinutes], *names: str) -> float | None:
    seconds = sum(one.length for one in periods)
    return sum(getattr(one, name) for one in periods for name in names) / seconds if seconds else None
