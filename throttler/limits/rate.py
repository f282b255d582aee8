"""Rates as people and settings write them, `10/s;10000/day`: windows of which each holds, and the burst."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings

from config.environment.env import BadSetting

# -- Rates as people write them ------------------------------------------------------------------------------
UNITS = {"s": 1_000_000, "min": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
NAMES = {period: unit for unit, period in UNITS.items()}
MOST_BURST = 1_000_000
LONGEST_TEXT = 200
ONE = re.compile(r"([0-9]{1,12}) ?/ ?([a-z0-9]{1,12})", re.ASCII)


class BadRates(ValueError):
    """No rates; the text is one line for people."""


@dataclass(frozen=True)
class RateWindow:
    """At most `limit` in `period_us`."""

    limit: int
    period_us: int


@dataclass(frozen=True)
class Rates:
    """What a customer may send: windows, shortest first; none is hold. `burst` is that of the shortest."""

    windows: tuple[RateWindow, ...]
    burst: int

    @property
    def held(self) -> bool:
        return not self.windows

    @cached_property
    def plain(self) -> bool:
        """One window, no quota."""
        return len(self.windows) == 1

    @cached_property
    def interval_us(self) -> int:
        """Between two messages of the shortest window, rounded up: one that left takes at least its time."""
        return self.worth_us(1)

    @cached_property
    def burst_us(self) -> int:
        """How far the limiter may run ahead of the clock."""
        return self.worth_us(self.burst)

    @cached_property
    def room_us(self) -> int:
        """How far it may have run ahead for one more to leave: rounded down."""
        shortest = self.windows[0]
        return (self.burst - 1) * shortest.period_us // shortest.limit

    def worth_us(self, count: int) -> int:
        """The time that `count` messages take, rounded up to a microsecond."""
        shortest = self.windows[0]
        return -(-count * shortest.period_us // shortest.limit)


def parse_rates(text: str, burst: int | None = None) -> Rates:
    """`10/s;10000/day`, in any order, units `s min hour day`; `0/s` is hold; no burst: one second's worth, at least 1.

    Raises BadRates.
    """
    if burst is not None and not 1 <= burst <= MOST_BURST:
        raise BadRates(f"burst: must be 1 to {MOST_BURST}")
    if len(text) > LONGEST_TEXT:
        raise BadRates(f"rates: longer than {LONGEST_TEXT} characters")
    windows = sorted(map(window, text.split(";")), key=lambda one: one.period_us)
    refuse_repeated(windows)
    if not any(one.limit for one in windows):
        return Rates((), burst or 1)
    shortest = windows[0]
    return Rates(tuple(windows), burst or max(1, shortest.limit * UNITS["s"] // shortest.period_us))


def window(text: str) -> RateWindow:
    match = ONE.fullmatch(text.strip(" "))
    if not match:
        raise BadRates(f"{shown(text)}: no rate such as 10/s")
    limit, unit = int(match[1]), match[2]
    if unit not in UNITS:
        raise BadRates(f"{shown(text)}: unknown unit, use one of {', '.join(UNITS)}")
    if limit > UNITS[unit]:
        raise BadRates(f"{shown(text)}: more than 1000000 a second")
    return RateWindow(limit, UNITS[unit])


def refuse_repeated(windows: Sequence[RateWindow]) -> None:
    periods = [one.period_us for one in windows]
    for period in periods:
        if periods.count(period) > 1:
            raise BadRates(f"two rates for one {NAMES[period]}")
    if len(windows) > 1 and not all(one.limit for one in windows):
        raise BadRates("0 is hold, and stands alone")


def shown(text: str) -> str:
    return ascii(text.strip()[:40])


def rates_text(rates: Rates) -> str:
    """The one spelling that `parse_rates` reads back as the same windows."""
    return ";".join(f"{one.limit}/{NAMES[one.period_us]}" for one in rates.windows) or "0/s"


# -- Rates of the settings -----------------------------------------------------------------------------------
def default_rates() -> Rates:
    """What a customer without a row may send."""
    return _rates("THROTTLER_DEFAULT_RATE")


def output_rate() -> RateWindow | None:
    """What all customers together may send; None: no limit."""
    if not settings.THROTTLER_OUTPUT_RATE:
        return None
    rates = _rates("THROTTLER_OUTPUT_RATE")
    if not rates.plain:
        raise BadSetting("THROTTLER_OUTPUT_RATE: one rate such as 500/s, and not 0")
    return rates.windows[0]


def _rates(name: str) -> Rates:
    try:
        return parse_rates(getattr(settings, name))
    except BadRates as error:
        raise BadSetting(f"{name}: {error}") from None
