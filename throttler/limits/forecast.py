"""The forecast of a customer: when messages leave, which are given up before, and the rate that avoids it. Pure.

API, page and home all ask this one, so that they agree.
"""

from __future__ import annotations

from bisect import bisect_right
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

    def enough(self, rates: Rates, times: float = 1.0) -> Rates:
        """The same windows, each as large as `times` the needed speed asks, none smaller than it is."""
        speed = self.needed * times
        shortest, *longer = rates.windows
        limit = max(shortest.limit, _rounded_up(speed * shortest.period_us / SECOND))
        grown = [RateWindow(min(limit, shortest.period_us), shortest.period_us)]
        for window, later, used in self.in_one_life(longer):
            least = max(window.limit, _rounded_up((speed * self.ttl + used) / (1 + later)))
            grown.append(RateWindow(min(least, window.period_us), window.period_us))
        return Rates(tuple(grown), rates.burst)

    def used(self, period_us: int) -> int:
        """How much of a longer window is spent now; of several lanes' the most."""
        return max(
            (used for period, start, used in self.quota if period == period_us and start + period > self.now_us),
            default=0,
        )

    def ends_us(self, window: RateWindow) -> int:
        """Microseconds until a longer window, which is one of UTC, ends."""
        return window.period_us - self.now_us % window.period_us

    def in_one_life(self, longer: Sequence[RateWindow]) -> Iterator[tuple[RateWindow, int, int]]:
        """Each longer window, how many of it begin within one life, and what is spent of the one that runs."""
        for window in longer:
            later = ceil(max(0.0, self.ttl * SECOND - self.ends_us(window)) / window.period_us)
            yield window, later, self.used(window.period_us)


@dataclass(frozen=True)
class Forecast:
    """What lies before the messages of a customer at these rates, if they arrive as they did of late.

    The customer's rate alone decides: what THROTTLER_OUTPUT_RATE takes away, and a shorter life that a message names
    itself, are left out.
    """

    traffic: Traffic
    rates: Rates

    @cached_property
    def leaving(self) -> float:
        """Messages a second that can leave, on an average of one life; 0: held, or a quota is used up."""
        if self.rates.held:
            return 0.0
        shortest, *longer = self.rates.windows
        speeds = [shortest.limit * SECOND / shortest.period_us]
        for window, later, used in self.traffic.in_one_life(longer):
            speeds.append((max(0, window.limit - used) + window.limit * later) / self.traffic.ttl)
        return min(speeds)

    def leaves_in(self, count: int) -> int | None:
        """Seconds until the last of `count` messages that are sent now leaves, rounded up; None: held."""
        return None if self.rates.held else ceil(self._leaves_after_us(self.traffic.backlog + count) / SECOND)

    def given_up(self, count: int, ttl: int) -> int:
        """How many of `count` messages that are sent now, and live `ttl` seconds, expire before their turn."""
        if self.rates.held or not ttl:
            return count
        last = self.traffic.backlog + count
        # The time of leaving only grows with the place.
        in_time = bisect_right(range(1, last + 1), ttl * SECOND, key=self._leaves_after_us)
        return min(count, last - in_time)

    @cached_property
    def expires_in(self) -> float | None:
        """Seconds until the first message is given up; 0: it happens now. None: all of them leave before."""
        traffic = self.traffic
        if traffic.backlog and traffic.oldest >= traffic.ttl:
            return 0.0
        if not self.leaving:
            waits = traffic.oldest if traffic.backlog else 0.0
            return traffic.ttl - waits if traffic.backlog or traffic.arriving else None
        drained = traffic.backlog / self.leaving  # when the last of those that wait now has its turn
        if drained > traffic.ttl:
            return (traffic.ttl - traffic.oldest) / (1 - traffic.oldest / drained)
        if traffic.arriving > self.leaving:
            return drained + (traffic.ttl - drained) / (1 - self.leaving / traffic.arriving)
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
        """Seconds until nothing waits; 0: nothing does, nor will. None: never."""
        faster = self.leaving - self.traffic.arriving
        if faster == 0 and not self.traffic.backlog:
            return 0.0
        return self.traffic.backlog / faster if faster > 0 else None

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

    def _leaves_after_us(self, place: int) -> int:
        """Microseconds until the message at `place` leaves (1 is the next), whatever is given up before; not if held.

        Who has something waiting has spent the burst.
        """
        shortest, *longer = self.rates.windows
        behind = place if self.traffic.backlog else max(0, place - self.rates.burst)
        return max([behind * shortest.period_us // shortest.limit, *(self._of_quota(one, place) for one in longer)])

    def _of_quota(self, window: RateWindow, place: int) -> int:
        """What is left of a longer window goes at once, then nothing until it ends."""
        left = max(0, window.limit - self.traffic.used(window.period_us))
        if place <= left:
            return 0
        return self.traffic.ends_us(window) + (place - left - 1) // window.limit * window.period_us

    def _moved(self, head: float, count: float) -> float:
        """When the message was sent that is the oldest after `count` have left."""
        traffic = self.traffic
        if head < 0 and traffic.oldest > 0 and traffic.backlog:
            thick = traffic.backlog / traffic.oldest  # messages for each second of the age
            if count <= -head * thick:
                return head + count / thick
            head, count = 0.0, count + head * thick
        return head + count / traffic.arriving if traffic.arriving else inf if count else head


def _rounded_up(number: float) -> int:
    """A whole number that people would write: two digits that count from 100 on."""
    whole = max(1, ceil(number - 1e-9))
    unit = 10 ** max(0, len(str(whole)) - 2)
    return -(-whole // unit) * unit
