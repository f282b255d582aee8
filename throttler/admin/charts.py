"""The two charts of a customer's page: rates, and the age of the oldest message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.safestring import SafeString

from config.admin import humanize, svg
from config.admin.svg import Point, Scale
from throttler.customers.situation import FiveMinutes, Situation, Timeline

AHEAD = timedelta(hours=3)
POINTS = 36  # of the forecast
LEAST_RATE = 0.01
LEAST_SECONDS = 60  # of a period whose rate is drawn
ARRIVING, SENT, ALLOWED, FORECAST = "sw-arriving", "sw-sent", "sw-allowed", "sw-forecast"


@dataclass(frozen=True)
class Chart:
    """What the template draws, and the words around it. `keys`: (class, word) of each line."""

    name: str  # its heading is `sw-chart-<name>`, its caption `sw-chart-<name>-words`
    since: str
    plot: SafeString
    keys: Sequence[tuple[str, str]]
    caption: str


def rate_chart(timeline: Timeline, allowed: Sequence[Point]) -> Chart | None:
    """Arriving, sent and allowed messages a second. `allowed`: what was set when, oldest first. None: too short."""
    periods = _measured(timeline.charted)
    if len(periods) < 2:
        return None
    start, end = periods[0].start, timeline.now
    ends = [*(period.end for period in periods[:-1]), end]
    arrived, sent = (
        [(at, getattr(period, way)) for at, period in zip(ends, periods, strict=True)] for way in ("arrived", "sent")
    )
    measured = max(LEAST_RATE, *(value for _, value in [*arrived, *sent]))
    steps = svg.steps(allowed, start, end)
    scale = Scale(start, end, svg.nice(max(measured, *(min(value, 2 * measured) for _, value in steps), 0), 1 / 1000))
    arrived, sent = [(start, arrived[0][1]), *arrived], [(start, sent[0][1]), *sent]
    below = [(moment, min(out, came)) for (moment, out), (_, came) in zip(sent, arrived, strict=True)]
    shapes = [svg.grid(), scale.area("sw-over-rate", arrived, below)]
    shapes += [scale.line(ARRIVING, arrived), scale.line(SENT, sent), scale.line(ALLOWED, steps)]
    keys = [(ARRIVING, "Arriving"), (SENT, "Sent"), (ALLOWED, "Allowed")]
    keys += [("sw-over-rate", "Over the rate, into the buffer")]
    least, most = (per_second(end_of(value for _, value in arrived)) for end_of in (min, max))
    caption = f"{least} a second arrived." if least == most else f"Between {least} and {most} a second arrived."
    caption += " Drawn from when this customer was first over the rate, 12 hours at most."
    since = f"{_since(start)}, messages per second, {humanize.zone(start)}"
    return Chart("rate", since, _plot("rate", scale, per_second, shapes), keys, caption)


def _measured(periods: Sequence[FiveMinutes]) -> Sequence[FiveMinutes]:
    """Without a last one that has just begun: the read model is a second late, which would be drawn as a fall."""
    return periods[:-1] if periods and periods[-1].length < LEAST_SECONDS else periods


def age_chart(situation: Situation, forecast: bool) -> Chart | None:
    """The age of the oldest message, and with `forecast` how it goes on. None: too short."""
    charted = situation.timeline.charted
    known = zip(charted, situation.timeline.ages(), strict=True)
    past = [(period.end, age) for period, age in known if age is not None]
    if len(past) < 2:
        return None
    ttl, now = situation.traffic.ttl, situation.now
    past[-1] = (now, situation.traffic.oldest if situation.traffic.backlog else 0.0)
    if len(charted) == len(situation.timeline.periods):
        past.insert(0, (charted[0].start, 0.0))  # nothing waited before the first row
    start = past[0][0]
    ahead = min(AHEAD, max(timedelta(minutes=10), (now - start) / 3)) if forecast else timedelta(0)
    scale = Scale(start, now + ahead, svg.span(max(ttl * 1.1, *(age for _, age in past))))
    expires, now_x = scale.y(ttl), scale.x(now) if forecast else None
    shapes = [svg.element("rect", css="sw-too-old", x=0, y=0, width=svg.WIDTH, height=expires), svg.grid()]
    if forecast:
        shapes.append(svg.element("path", css="sw-now", d=f"M{now_x} 0V{svg.HEIGHT}"))
    shapes += [svg.level(ALLOWED, expires), scale.line(ARRIVING, past)]
    keys = [(ARRIVING, "Oldest message"), (ALLOWED, "Expires")]
    if forecast:
        coming = situation.forecast.ages(ahead.total_seconds(), POINTS)
        shapes.append(scale.line(FORECAST, ((now + ahead * at / POINTS, age) for at, age in enumerate(coming))))
        keys.insert(1, (FORECAST, "Forecast at today’s rates"))
    caption = f"Oldest now: {life(past[-1][1])}. Messages expire at {life(ttl)}."
    since = f"{_since(start)}, {humanize.zone(start)}" + (", and a forecast" if forecast else "")
    return Chart("age", since, _plot("age", scale, life, shapes, now_x), keys, caption)


def _plot(
    name: str, scale: Scale, words: Callable[[float], str], shapes: Sequence[SafeString], now_x: float | None = None
) -> SafeString:
    drawing = svg.chart("sw-lines", shapes, heading=name)
    return svg.plot(words(scale.top), words(scale.top / 2), drawing, svg.times(scale.start, scale.end, now=now_x))


def _since(start: datetime) -> str:
    return f"since {timezone.localtime(start):%H:%M}"


def per_second(value: float) -> str:
    """`3.5`, `0.04`, `1,200`: two digits that count."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def life(seconds: float) -> str:
    """A length of time on a scale: `6 h`, `90 min`."""
    return humanize.length(seconds, coarse=True)
