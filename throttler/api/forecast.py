"""When the last of some messages would leave, and how many would expire before: from the mirror, a second old."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from django.conf import settings

from throttler.customers.models import Customer
from throttler.lanes.models import Lane, LaneOwner
from throttler.limits.configured import default_rates
from throttler.limits.rate import Rates, RateWindow
from throttler.moments import microseconds

SECOND = 1_000_000


@dataclass(frozen=True)
class Prospect:
    """What lies before some messages; each None where nobody can tell. `eta_seconds` is that of the last one."""

    backlog: int | None = None
    eta_seconds: int | None = None
    would_expire: int | None = None


@dataclass(frozen=True)
class Backlog:
    """What a customer has waiting, and has used of the longer windows: `[period_us, start_us, used]`, as the limiter keeps it."""

    backlog: int = 0
    quota: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, customer_id: str) -> Backlog:
        """There is more than one lane only while partitions are added."""
        lanes = list(Lane.objects.filter(customer_id=customer_id).values_list("backlog", "limiter"))
        quota = [one for _, limiter in lanes for one in limiter.get("quota", [])]
        return cls(sum(backlog for backlog, _ in lanes), quota)

    def used(self, period_us: int, now_us: int) -> int:
        """How much of a longer window is spent now."""
        return max(
            (used for period, start, used in self.quota if period == period_us and start + period > now_us), default=0
        )

    def leaves_after_us(self, rates: Rates, place: int, now_us: int) -> int:
        """Microseconds until the message at `place` (1 is the next) leaves, if the slowest window alone decides.

        Who has something waiting has spent the burst.
        """
        shortest, *longer = rates.windows
        behind = place if self.backlog else max(0, place - rates.burst)
        spread = behind * shortest.period_us // shortest.limit
        return max([spread, *(self._of_quota(window, place, now_us) for window in longer)])

    def _of_quota(self, window: RateWindow, place: int, now_us: int) -> int:
        """What is left of a longer window goes at once, then nothing until it ends; each is one of UTC."""
        left = max(0, window.limit - self.used(window.period_us, now_us))
        if place <= left:
            return 0
        ends = window.period_us - now_us % window.period_us
        return ends + (place - left - 1) // window.limit * window.period_us


def prospect(rates: Rates, waiting: Backlog, count: int, ttl_us: int, now_us: int) -> Prospect:
    """What `count` messages behind those that wait may expect; rates without a window let nothing leave."""
    if rates.held:
        return Prospect(waiting.backlog, None, count)
    last = waiting.backlog + count
    eta = waiting.leaves_after_us(rates, last, now_us)
    # The time of leaving only grows with the place.
    alive = bisect_right(range(1, last + 1), ttl_us, key=lambda place: waiting.leaves_after_us(rates, place, now_us))
    return Prospect(waiting.backlog, ceil(eta / SECOND), min(count, last - alive) if ttl_us else count)


def forecast(customer_id: str, count: int, now: datetime, ttl_seconds: int | None = None) -> Prospect:
    """Of the mirror for `count` more messages. All None: no owner reported of late."""
    if not LaneOwner.objects.reporting(now).exists():
        return Prospect()
    customer = Customer.objects.filter(pk=customer_id).first()
    rates = customer.allowed if customer else default_rates()
    lifetime = _first(ttl_seconds, customer.ttl_seconds if customer else None, settings.THROTTLER_TTL_SECONDS)
    return prospect(rates, Backlog.of(customer_id), count, lifetime * SECOND, microseconds(now))


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
