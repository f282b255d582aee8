"""Letters per hour as bars: small ones for the list, a chart with its finding in words for the page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from config.admin import humanize

DAY, TWO_DAYS, WEEK = 24, 48, 168  # hours
WIDTH, HEIGHT = 1000, 100
GAP = 0.25  # of a bar's room
LABELS = 4
LEAST_RISING = 4  # letters of an hour


@dataclass(frozen=True)
class Bar:
    """One hour, in a box of 1000 by 100; `last` is the hour under way."""

    x: float
    y: float
    width: float
    height: float
    last: bool = False


@dataclass(frozen=True)
class Label:
    """A time below the chart; `x` in percent."""

    x: float
    anchor: str
    text: str


@dataclass(frozen=True)
class Trend:
    """Bars and what they say."""

    bars: Sequence[Bar]
    words: str
    rising: bool
    sentence: str  # for who cannot see the bars

    @property
    def path(self) -> str:
        """All bars in one element: a list has 24 of them a row."""
        return "".join(f"M{bar.x} {HEIGHT}V{bar.y}h{bar.width}V{HEIGHT}z" for bar in self.bars)


@dataclass(frozen=True)
class HourChart:
    """Bars, scale, times, and the finding in words."""

    bars: Sequence[Bar]
    high: str
    middle: str
    times: Sequence[Label]
    rising: bool
    caption: str
    rest: str


def trend_of(hours: Sequence[int], came_back: bool = False) -> Trend:
    """The last hours of a group, the one under way last."""
    now, before = hours[-1], hours[-2]
    rising = is_rising(now, before)
    word = "came back" if came_back else "rising" if rising else "steady" if now else ""
    words = f"{now:,} this hour" + (f", {word}" if word else "")
    most = humanize.plural(max(hours), "letter", "letters")
    sentence = f"Letters in each of {len(hours)} hours, at most {most} in one; {words}"
    return Trend(bars_of(hours), words, rising, sentence)


def chart_of(hours: Sequence[int], now: datetime) -> HourChart:
    """The chart of one group."""
    top = nice(max(hours))
    last, before = hours[-1], hours[-2]
    rising = is_rising(last, before)
    begin = "Rising: " if rising else ""
    caption = f"{begin}{humanize.plural(last, 'letter', 'letters')} this hour, {before:,} in the hour before."
    return HourChart(
        bars_of(hours, top), f"{top:,}", _half(top), times(len(hours), now), rising, caption, _first(hours, now)
    )


def is_rising(now: int, before: int) -> bool:
    """More by a quarter, and more than a handful: 2 after 1 are no trend."""
    return now > max(LEAST_RISING, before * 1.25)


def bars_of(hours: Sequence[int], top: float = 0) -> list[Bar]:
    room, top = WIDTH / len(hours), top or max(hours)
    return [
        Bar(
            round(room * (at + GAP / 2), 1),
            round(HEIGHT - height, 1),
            round(room * (1 - GAP), 1),
            height,
            at == len(hours) - 1,
        )
        for at, number in enumerate(hours)
        if number
        for height in [max(2.0, round(number / top * HEIGHT, 1))]
    ]


def times(hours: int, now: datetime) -> list[Label]:
    """Times below the chart, evenly; the last one is now."""
    start = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours - 1)
    found = [Label(100.0, "end", "now")]
    for at in range(LABELS):
        moment = start + timedelta(hours=hours * at / LABELS)
        found.append(Label(100 * at / LABELS, "middle" if at else "start", f"{moment:%a %H:%M}"))
    return sorted(found, key=lambda label: label.x)


def nice(value: float) -> int:
    """The next whole number that halves well: 2, 4, 10, 20, 40, 100 …"""
    unit = 1
    while unit * 10 < value:
        unit *= 10
    return next(unit * step for step in (1, 2, 4, 6, 8, 10) if unit * step >= value and unit * step > 1)


def _half(top: int) -> str:
    return f"{top / 2:,.0f}"


def _first(hours: Sequence[int], now: datetime) -> str:
    """Since when there have been letters in these hours."""
    at = next((place for place, number in enumerate(hours) if number), None)
    if at is None:
        return f"None in {humanize.plural(len(hours), 'hour', 'hours')}."
    if at == 0:
        return ""
    moment = now.astimezone(UTC).replace(minute=0) - timedelta(hours=len(hours) - 1 - at)
    return f"None in the {humanize.plural(at, 'hour', 'hours')} before {moment:%A %H:%M}."
