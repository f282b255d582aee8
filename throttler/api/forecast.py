"""When the last of some messages would leave, and how many would expire before: from the mirror, a second old."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import ceil

from django.conf import settings
from django.db.models import Sum

from throttler.customers.models import Customer
from throttler.lanes.models import Lane, LaneOwner
from throttler.limits.rate import Rates, parse_rates

SECOND = 1_000_000


@dataclass(frozen=True)
class Prospect:
    """What lies before some messages; each None where nobody can tell. `eta_seconds` is that of the last one."""

    backlog: int | None = None
    eta_seconds: int | None = None
    would_expire: int | None = None


def leaves_after_us(rates: Rates, place: int) -> int:
    """Microseconds until the message at `place` (1 is the next) leaves, if the slowest window alone decides.

    Every window is taken as just opened with nothing left, except the burst, which a customer who waits has spent.
    """
    return max(_of_window(window.limit, window.period_us, place, index) for index, window in enumerate(rates.windows))


def _of_window(limit: int, period_us: int, place: int, index: int) -> int:
    # The shortest window is spread evenly; a longer one lets its limit go at once, then nothing until it ends.
    return place * period_us // limit if index == 0 else (place - 1) // limit * period_us


def prospect(rates: Rates | None, backlog: int, count: int, ttl_us: int) -> Prospect:
    """What `count` messages behind `backlog` may expect; `rates` without a window, or None, lets nothing leave."""
    if rates is None or not rates.windows:
        return Prospect(backlog, None, count)
    free = max(0, rates.burst) if backlog == 0 else 0
    last = backlog + count - free
    eta = leaves_after_us(rates, last) if last > 0 else 0
    alive = _most_alive(rates, last, ttl_us)
    return Prospect(backlog, ceil(eta / SECOND), min(count, max(0, last - alive)))


def _most_alive(rates: Rates, last: int, ttl_us: int) -> int:
    """How many of the `last` leave within the lifetime (the time of leaving only grows with the place)."""
    low, high = 0, max(0, last)
    while low < high:
        middle = (low + high + 1) // 2
        if leaves_after_us(rates, middle) <= ttl_us:
            low = middle
        else:
            high = middle - 1
    return low


def forecast(
    customer_id: str, count: int, now: datetime, ttl_seconds: int | None = None, rates: Rates | None = None
) -> Prospect:
    """Of the mirror for `count` more messages; `rates` asks what another rate would do. All None: no owner reported."""
    if not LaneOwner.objects.reporting(now).exists():
        return Prospect()
    customer = Customer.objects.filter(pk=customer_id).first()
    backlog = Lane.objects.filter(customer_id=customer_id).aggregate(all=Sum("backlog"))["all"] or 0
    lifetime = _first(ttl_seconds, customer.ttl_seconds if customer else None, settings.THROTTLER_TTL_SECONDS)
    return prospect(rates or _rates_of(customer), backlog, count, lifetime * SECOND)


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _rates_of(customer: Customer | None) -> Rates | None:
    if customer is None:
        return parse_rates(settings.THROTTLER_DEFAULT_RATE)
    return None if customer.held else parse_rates(customer.rates, customer.burst)
