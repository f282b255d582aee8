"""What lies before a customer who waits: when messages expire, how many, and the rate that avoids it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf

from throttler.limits.rate import Rates, RateWindow

SECOND = 1_000_000
STEP = 60.0  # seconds, of the forecast that is drawn


@dataclass(frozen=True)
class Traffic:
    """What a customer has waiting and sends. Ages and lives are seconds, `arriving` messages a second.

    `quota`: `[period_us, start_us, used]` of each longer window, as the limiter keeps it.
    """

    backlog: int
    oldest: float
    arriving: float
    ttl: float
    now_us: int
    quota: Sequence[Sequence[int]] = ()

    @property
    def needed(self) -> float:
        """Messages a second that have to leave so that none expires."""
        return max(self.arriving, self.backlog / self.ttl)

    def leaving(self, rates: Rates | None) -> float:
        """Messages a second that can leave, on an average of one life; None and no window: held."""
        if rates is None or rates.held:
            return 0.0
        shortest, *longer = rates.windows
        speeds = [shortest.limit * SECOND / shortest.period_us]
        speeds += [max(0, window.limit * starts - used) / self.ttl for window, starts, used in self._windows(longer)]
        return min(speeds)

    def enough(self, rates: Rates, times: float = 1.0) -> Rates:
        """The same windows, each as large as `times` the needed speed asks, none smaller than it is."""
        speed = self.needed * times
        shortest, *longer = rates.windows
        limit = max(shortest.limit, _rounded_up(speed * shortest.period_us / SECOND))
        grown = [RateWindow(min(limit, shortest.period_us), shortest.period_us)]
        for window, starts, used in self._windows(longer):
            least = max(window.limit, _rounded_up((speed * self.ttl + used) / starts))
            grown.append(RateWindow(min(least, window.period_us), window.period_us))
        return Rates(tuple(grown), rates.burst)

    def used(self, period_us: int) -> int:
        """How much of a longer window is spent now."""
        return next(
            (used for period, start, used in self.quota if period == period_us and start + period > self.now_us), 0
        )

    def _windows(self, longer: Sequence[RateWindow]) -> Iterator[tuple[RateWindow, int, int]]:
        """Each longer window, how many of it one life touches, and what is spent of the first."""
        for window in longer:
            left = window.period_us - self.now_us % window.period_us
            more = ceil(max(0.0, self.ttl * SECOND - left) / window.period_us)
            yield window, 1 + more, self.used(window.period_us)


@dataclass(frozen=True)
class Forecast:
    """The forecast at one speed of leaving, in messages a second."""

    traffic: Traffic
    leaving: float

    @cached_property
    def expires_in(self) -> float | None:
        """Seconds until the first message expires; 0: it happens now. None: all of them leave before."""
        found = self.traffic
        if found.backlog and found.oldest >= found.ttl:
            return 0.0
        if not self.leaving:
            return found.ttl - (found.oldest if found.backlog else 0.0) if found.backlog or found.arriving else None
        drained = found.backlog / self.leaving  # when the last of those that wait now has its turn
        if drained > found.ttl:
            return (found.ttl - found.oldest) / (1 - found.oldest / drained)
        if found.arriving > self.leaving:
            return drained + (found.ttl - drained) / (1 - self.leaving / found.arriving)
        return None

    @property
    def lost_per_second(self) -> float:
        """Messages that expire, once they do and for as long as they arrive as now."""
        return max(0.0, self.traffic.arriving - self.leaving)

    @property
    def lost(self) -> int:
        """How many of those that wait now expire."""
        return max(0, self.traffic.backlog - int(self.leaving * self.traffic.ttl + 1e-6))

    @property
    def gone_in(self) -> float | None:
        """Seconds until nothing waits; None: never."""
        faster = self.leaving - self.traffic.arriving
        return self.traffic.backlog / faster if faster > 0 else None if self.traffic.backlog else 0.0

    def ages(self, seconds: float, points: int) -> list[float]:
        """The age of the oldest message, now and at `points` moments more, evenly over the next `seconds`."""
        steps = max(1, round(seconds / points / STEP))
        tick = seconds / points / steps
        head = -min(self.traffic.oldest, self.traffic.ttl)  # when the oldest was sent, as seconds from now
        result = [-head]
        for step in range(1, points * steps + 1):
            now = tick * step
            head = min(max(self._moved(head, self.leaving * tick), now - self.traffic.ttl), now)
            if step % steps == 0:
                result.append(now - head)
        return result

    def _moved(self, head: float, count: float) -> float:
        """When the message was sent that is the oldest after `count` have left."""
        found = self.traffic
        if head < 0 and found.oldest > 0 and found.backlog:
            thick = found.backlog / found.oldest  # messages for each second of the age
            if count <= -head * thick:
                return head + count / thick
            head, count = 0.0, count + head * thick
        return head + count / found.arriving if found.arriving else inf if count else head


def _rounded_up(number: float) -> int:
    """A whole number that people would write: two digits that count from 100 on."""
    whole = max(1, ceil(number - 1e-9))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return -(-whole // unit) * unit
