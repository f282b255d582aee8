"""The two charts of a customer's page: rates, and the age of the oldest message; coordinates in a box of 1000 by 100."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from config.admin import humanize
from throttler.customers.situation import FiveMinutes, Situation, Timeline

WIDTH, HEIGHT = 1000, 100
AHEAD = timedelta(hours=3)
POINTS = 36  # of the forecast
LABELS = 4  # spaces between the times below a chart
LEAST_RATE = 0.01
LEAST_SECONDS = 60  # of a period whose rate is drawn
SPANS = (60, 120, 300, 600, 1200, 1800, 3600, 7200, *(hours * 3600 for hours in (4, 8, 12, 24, 48, 96, 192, 384, 720)))
Point = tuple[datetime, float]


@dataclass(frozen=True)
class TimeLabel:
    """A time below a chart; `x` in percent."""

    x: float
    anchor: str
    text: str


@dataclass(frozen=True)
class Chart:
    """What the template draws: lines by name as SVG points, and the words around them."""

    begins: datetime
    high: str
    middle: str
    times: Sequence[TimeLabel]
    lines: dict[str, str]
    caption: str
    level: float | None = None  # y of the line that must not be crossed
    now_x: float | None = None


@dataclass(frozen=True)
class Scale:
    """Places moments and values in the box; a value above the top stays at the top."""

    start: datetime
    end: datetime
    top: float

    def x(self, moment: datetime) -> float:
        return round((moment - self.start) / (self.end - self.start) * WIDTH, 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - min(value, self.top) / self.top * HEIGHT, 1)

    def points(self, line: Iterable[Point]) -> str:
        return " ".join(f"{self.x(moment)},{self.y(value)}" for moment, value in line)


def rate_chart(timeline: Timeline, allowed: Sequence[Point]) -> Chart | None:
    """Arriving, sent and allowed messages a second. `allowed`: what was set when, oldest first. None: too short."""
    found = _measured(timeline.charted)
    if len(found) < 2:
        return None
    start, end = found[0].start, timeline.now
    ends = [*(one.end for one in found[:-1]), end]
    arrived, sent = (
        [(at, getattr(one, way)) for at, one in zip(ends, found, strict=True)] for way in ("arrived", "sent")
    )
    measured = max(LEAST_RATE, *(value for _, value in [*arrived, *sent]))
    steps = _steps(allowed, start, end)
    scale = Scale(start, end, nice(max(measured, *(min(value, 2 * measured) for _, value in steps), 0)))
    arrived, sent = [(start, arrived[0][1]), *arrived], [(start, sent[0][1]), *sent]
    below = [(moment, min(out, came)) for (moment, out), (_, came) in zip(sent, arrived, strict=True)]
    lines = {
        "over": scale.points([*arrived, *reversed(below)]),
        "arriving": scale.points(arrived),
        "sent": scale.points(sent),
        "allowed": scale.points(steps),
    }
    least, most = (per_second(end_of(value for _, value in arrived)) for end_of in (min, max))
    caption = f"{least} a second arrived." if least == most else f"Between {least} and {most} a second arrived."
    return Chart(start, per_second(scale.top), per_second(scale.top / 2), times(scale), lines, caption)


def _measured(periods: Sequence[FiveMinutes]) -> Sequence[FiveMinutes]:
    """Without a last one that has just begun: the mirror is a second late, which would be drawn as a fall."""
    return periods[:-1] if periods and periods[-1].length < LEAST_SECONDS else periods


def age_chart(found: Situation, forecast: bool) -> Chart | None:
    """The age of the oldest message, and with `forecast` how it goes on. None: too short."""
    charted = found.timeline.charted
    known = zip(charted, found.timeline.ages(), strict=True)
    past = [(one.end, age) for one, age in known if age is not None]
    if len(past) < 2:
        return None
    ttl, now = found.traffic.ttl, found.now
    past[-1] = (now, found.traffic.oldest if found.traffic.backlog else 0.0)
    if len(charted) == len(found.timeline.periods):
        past.insert(0, (charted[0].start, 0.0))  # nothing waited before the first row
    start = past[0][0]
    ahead = min(AHEAD, max(timedelta(minutes=10), (now - start) / 3)) if forecast else timedelta(0)
    scale = Scale(start, now + ahead, span(max(ttl * 1.1, *(age for _, age in past))))
    lines = {"oldest": scale.points(past)}
    if forecast:
        coming = found.forecast.ages(ahead.total_seconds(), POINTS)
        lines["forecast"] = scale.points((now + ahead * at / POINTS, age) for at, age in enumerate(coming))
    caption = f"Oldest now: {humanize.length(past[-1][1], coarse=True)}. Messages expire at {life(ttl)}."
    high, middle = life(scale.top), life(scale.top / 2)
    now_x = scale.x(now) if forecast else None
    return Chart(start, high, middle, times(scale, now_x), lines, caption, scale.y(ttl), now_x)


def times(scale: Scale, now_x: float | None = None) -> list[TimeLabel]:
    """Times below the chart, evenly; the place of now says so, and what is too near gives way."""
    found = []
    for at in range(LABELS + 1):
        x = 100 * at / LABELS
        if now_x is None or abs(x - now_x / 10) > 10:
            anchor = "start" if at == 0 else "end" if at == LABELS else "middle"
            moment = scale.start + (scale.end - scale.start) * at / LABELS
            found.append(TimeLabel(x, anchor, f"{moment.astimezone(UTC):%H:%M}"))
    if now_x is not None:
        found.append(TimeLabel(now_x / 10, "middle", "now"))
    return found


def nice(value: float) -> float:
    """The next number that halves well: 0.2, 0.5, 1, 2, 4, 6, 8, 10, 20 …"""
    unit = 1.0
    while unit * 10 < value:
        unit *= 10
    while unit > value:
        unit /= 10
    return unit * next(step for step in (1, 2, 4, 6, 8, 10) if unit * step >= value - unit / 1000)


def span(seconds: float) -> float:
    """The next length of time that halves well."""
    return next((one for one in SPANS if one >= seconds), ceil(seconds / 86_400) * 86_400)


def per_second(value: float) -> str:
    """`3.5`, `0.04`, `1,200`: two digits that count."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def life(seconds: float) -> str:
    """A length of time on a scale: `6 h`, `90 min`."""
    return humanize.length(seconds, coarse=True)


def _steps(allowed: Sequence[Point], start: datetime, end: datetime) -> list[Point]:
    """A line with a step where the rate was changed."""
    line: list[Point] = []
    for moment, value in allowed:
        at = min(max(moment, start), end)
        if line:
            line.append((at, line[-1][1]))
        line.append((at, value))
    return [*line, (end, line[-1][1])] if line else []
