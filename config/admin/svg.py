"""Everything that the admin draws: scales, lines, bars, times below a chart, parts of a whole, flows. Colours are classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.flows import Stage

# -- Elements ------------------------------------------------------------------------------------------------
WIDTH, HEIGHT = 1000, 100  # of a chart's box; the sheet says how large it is on the page


def element(name: str, content: str = "", **attributes: object) -> SafeString:
    """One element, all of it escaped: `css` is its class, `text_anchor` is text-anchor, "" and None are left out."""
    named = {
        "class" if key == "css" else key.replace("_", "-"): value
        for key, value in attributes.items()
        if value not in ("", None)
    }
    # One template for all of it: a list has dozens of these, and to join each attribute took half of their time.
    opening = "<{}" + "".join(f' {key}="{{}}"' for key in named)
    if content:
        return format_html(opening + ">{}</{}>", name, *named.values(), content, name)
    return format_html(opening + "/>", name, *named.values())


def picture(css: str, shapes: Iterable[SafeString], label: str = "", heading: str = "", **more: object) -> SafeString:
    """An `<svg>` with a `label`, or named by the page: by `sw-chart-<heading>` and the caption `…-words`. Else readers skip it."""
    if heading:
        more |= {
            "role": "img",
            "aria_labelledby": f"sw-chart-{heading}",
            "aria_describedby": f"sw-chart-{heading}-words",
        }
    else:
        more |= {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return element("svg", format_html_join("", "{}", ((shape,) for shape in shapes)), css=css, **more)


def chart(css: str, shapes: Iterable[SafeString], label: str = "", heading: str = "", **more: object) -> SafeString:
    """A picture of 1000 by 100 that is stretched to its place."""
    more |= {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
    return picture(css, shapes, label, heading, **more)


def line(css: str, points: str) -> SafeString:
    return element("polyline", css=css, points=points)


def level(css: str, y: float) -> SafeString:
    """A line across a chart."""
    return element("path", css=css, d=f"M0 {y}H{WIDTH}")


# -- Lines without times -------------------------------------------------------------------------------------
def points(trend: Sequence[float], width: float, height: float) -> str:
    """A polyline through `trend`, its lowest value at the bottom; a flat row is a line in the middle."""
    low, high = min(trend), max(trend)
    step = width / (len(trend) - 1)
    if high == low:
        return f"0,{height / 2:g} {width:g},{height / 2:g}"
    return " ".join(
        f"{at * step:.1f},{height - (value - low) / (high - low) * height:.1f}" for at, value in enumerate(trend)
    )


def sparkline(trend: Sequence[float], label: str) -> str:
    """The shape of a row of numbers; the number itself stands beside it. Empty for fewer than two."""
    if len(trend) < 2:
        return ""
    width, height = 46, 12
    shape = line("", points(trend, width, height))
    return picture("sw-spark", [shape], label, width=width, height=height, viewBox=f"0 0 {width} {height}")


# -- Scales, and what they say -------------------------------------------------------------------------------
LABELS = 4  # spaces between the times below a chart
SPANS = (60, 120, 300, 600, 1200, 1800, 3600, 7200, *(hours * 3600 for hours in (4, 8, 12, 24, 48, 96, 192, 384, 720)))
Point = tuple[datetime, float]


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

    def points(self, values: Iterable[Point]) -> str:
        return " ".join(f"{self.x(moment)},{self.y(value)}" for moment, value in values)

    def line(self, css: str, values: Iterable[Point]) -> SafeString:
        return line(css, self.points(values))

    def area(self, css: str, upper: Sequence[Point], lower: Sequence[Point]) -> SafeString:
        """What lies between two lines."""
        return element("polygon", css=css, points=self.points([*upper, *reversed(lower)]))


def steps(changes: Iterable[Point], start: datetime, end: datetime) -> list[Point]:
    """A line with a step at each change, oldest first; empty without one."""
    corners: list[Point] = []
    for moment, value in changes:
        at = min(max(moment, start), end)
        if corners:
            corners.append((at, corners[-1][1]))
        corners.append((at, value))
    return [*corners, (end, corners[-1][1])] if corners else []


def nice(value: float, beyond: float = 0.0) -> float:
    """The next number that halves well: 0.2, 0.5, 1, 2, 4, 6, 8, 10, 20 …; `value` may be above it by `beyond` of its unit."""
    unit = 1.0
    while unit * 10 < value:
        unit *= 10
    while unit > value:
        unit /= 10
    return unit * next(step for step in (1, 2, 4, 6, 8, 10) if unit * step >= value - unit * beyond)


def span(seconds: float) -> float:
    """The next length of time that halves well."""
    return next((known for known in SPANS if known >= seconds), ceil(seconds / 86_400) * 86_400)


def times(start: datetime, end: datetime, form: str = "%H:%M", now: float | None = None) -> SafeString:
    """The times below a chart, evenly, in the zone of the page. `now`: x of the present, which says so; what is too near gives way."""
    labels = [
        (100 * at / LABELS, "start" if at == 0 else "end" if at == LABELS else "middle", f"{moment:{form}}")
        for at in range(LABELS + 1)
        for moment in [timezone.localtime(start + (end - start) * at / LABELS)]
    ]
    if now is not None:
        x = round(now * 100 / WIDTH, 2)
        far = [label for label in labels if abs(label[0] - x) > 10]
        labels = [*far, (x, "end" if x == 100 else "middle", "now")]
    texts = (element("text", text, x=f"{x}%", y=12, text_anchor=anchor) for x, anchor, text in labels)
    return picture("sw-times", texts, height=16)


def plot(top: str, middle: str, drawing: SafeString, below: SafeString) -> SafeString:
    """A chart between its scale and its times, for a `<figure class="sw-plot">`."""
    scale = '<div class="sw-scale" aria-hidden="true"><span>{}</span><span>{}</span><span>0</span></div>{}{}'
    return format_html(scale, top, middle, drawing, below)


def grid() -> SafeString:
    """Lines at the top, in the middle and on the ground."""
    return element("path", css="sw-grid", d=f"M0 0H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}M0 {HEIGHT}H{WIDTH}")


# -- Bars: one for each number -------------------------------------------------------------------------------
GAP = 0.25  # of a bar's room
LOWEST = 2.0  # one letter among thousands must be seen


class Bar(NamedTuple):
    """One number, standing on the ground of the box."""

    x: float
    y: float
    width: float
    height: float


def bars(numbers: Sequence[int], top: float = 0) -> list[Bar]:
    """One for each number but zero; `top` is the value at the top of the box, else it is the largest."""
    room, top = WIDTH / len(numbers), top or max(numbers)
    return [
        Bar(round(room * (at + GAP / 2), 1), round(HEIGHT - height, 1), round(room * (1 - GAP), 1), height)
        for at, number in enumerate(numbers)
        if number
        for height in [max(LOWEST, round(number / top * HEIGHT, 1))]
    ]


def in_one_path(standing: Iterable[Bar]) -> SafeString:
    """All bars in one element: a list has 24 of them a row."""
    return element("path", d="".join(f"M{bar.x} {HEIGHT}V{bar.y}h{bar.width}V{HEIGHT}z" for bar in standing))


# -- Parts of a whole, on one bar ----------------------------------------------------------------------------
THINNEST = 0.4  # percent: two letters among a million must be seen


class BarPart(NamedTuple):
    """One coloured stretch of a bar: its tone, its place in percent, and what a legend says of it."""

    tone: str
    x: float
    width: float
    word: str = ""
    number: int = 0


def parts(named: Iterable[tuple[str, str, int]], percent: float, whole: int) -> list[BarPart]:
    """(tone, word, number) one after the other; `whole` takes `percent` of the bar."""
    placed, x = [], 0.0
    for tone, word, number in named:
        width = max(percent * number / whole, THINNEST) if number and whole else 0.0
        placed.append(BarPart(tone, round(x, 2), round(width, 2), word, number))
        x += width
    return placed


def progress(placed: Iterable[BarPart], label: str = "", height: int = 18, mark: int | None = None) -> SafeString:
    """All parts on one bar; `mark` is a line at so many percent."""
    shapes = [element("rect", css="sw-track", width="100%", height=height)]
    shapes += [
        element("rect", css=f"sw-{part.tone}", x=f"{part.x:.2f}%", width=f"{part.width:.2f}%", height=height)
        for part in placed
        if part.width
    ]
    if mark is not None:
        shapes.append(element("rect", css="sw-limit", x=f"{mark}%", width=2, height=height))
    return picture("sw-bar", shapes, label, width="100%", height=height)


# -- A flow: boxes in columns, lines between them ------------------------------------------------------------
# In percent across and pixels down, so that the drawing fits any width and its text keeps its size.
FULL, HALF, BETWEEN = 86, 52, 14
JOINT = 3.6  # percent between two columns
SPARK = (44, 11)
LETTER = 7.6  # pixels a letter of a bold word takes at most, on average: no font is shipped
LISTED = 2  # boxes of a column in a list
ROOM = 19  # letters of name and word that fit on one line

Column = Sequence[Stage]


@dataclass(frozen=True)
class Box:
    """One stage and its place."""

    stage: Stage
    x: float
    width: float
    y: float
    height: int
    more: int = 0  # healthy ones of its column that a list leaves out behind it

    @property
    def half(self) -> bool:
        return self.height == HALF

    @property
    def trouble(self) -> bool:
        return self.stage.tone in ("bad", "warn")

    @property
    def icon(self) -> str:
        return "octagon" if self.stage.tone == "bad" else "clock"

    @property
    def icon_x(self) -> float:
        """Measured from the right edge, so that the word follows whatever the font's width."""
        return -26 - len(self.stage.word) * LETTER

    @property
    def word_x(self) -> float:
        return self.icon_x + 18

    @property
    def word_y(self) -> int:
        """In the upper right corner; one line lower when the name is long."""
        return 19 if len(self.stage.name) + len(self.stage.word) <= ROOM else self.value_y

    @property
    def details(self) -> list[tuple[int, str]]:
        """Detail lines with their baselines; a half box has no room for them."""
        return [] if self.half else [(61 + 14 * line, text) for line, text in enumerate(self.stage.details[:2])]

    @property
    def value_y(self) -> int:
        return 38 if self.half else 43

    @property
    def crowded(self) -> bool:
        """No room in the upper right corner: the line moves to the lower one."""
        return self.trouble or len(self.stage.name) > ROOM - 5

    @property
    def spark(self) -> str:
        hidden = self.crowded and any(len(text) > ROOM - 4 for _, text in self.details[1:])
        return points(self.stage.trend, *SPARK) if len(self.stage.trend) > 1 and not hidden else ""

    @property
    def spark_at(self) -> str:
        return f"-{SPARK[0] + 12} {self.height - SPARK[1] - 10 if self.crowded else 10}"

    @property
    def label(self) -> str:
        """The box in one sentence, for screen readers."""
        value = " ".join(filter(None, [self.stage.value, self.stage.unit]))
        return f"{self.stage.name}: " + ", ".join(filter(None, [value, *self.stage.details, self.stage.word]))


@dataclass(frozen=True)
class Link:
    """A line from the middle of one box to the middle of another in the next column."""

    x: float
    start: float
    end: float
    broken: bool
    width: float = JOINT


@dataclass(frozen=True)
class Drawing:
    """Everything the template needs to print one SVG."""

    boxes: Sequence[Box]
    links: Sequence[Link]
    height: int
    listed: Sequence[Box] = ()  # what a phone shows instead, one below the other


def draw(stages: Sequence[Stage | Column]) -> Drawing:
    """Lay out a chain; a sequence of stages inside the chain is a column of parallel, half-height boxes."""
    columns = [[stage] if isinstance(stage, Stage) else list(stage) for stage in stages]
    most = max((len(column) for column in columns), default=1)
    height = FULL if most == 1 else max(FULL, most * HALF + (most - 1) * BETWEEN)
    width = (100 - JOINT * (len(columns) - 1)) / max(1, len(columns))
    placed = [list(_column(column, at * (width + JOINT), width, height)) for at, column in enumerate(columns)]
    links = [link for left, right in pairwise(placed) for link in _between(left, right)]
    listed = [box for column in placed for box in _listed(column)]
    return Drawing([box for column in placed for box in column], links, height, listed)


def _listed(column: Sequence[Box]) -> Sequence[Box]:
    """Of many boxes side by side two, and all that are in trouble; the last one says how many more there are."""
    if len(column) <= LISTED:
        return column
    kept = sorted(column, key=lambda box: not box.trouble)[: max(LISTED, sum(box.trouble for box in column))]
    shown = [box for box in column if box in kept]
    return [*shown[:-1], replace(shown[-1], more=len(column) - len(shown))]


def _column(column: Column, x: float, width: float, height: int) -> Iterator[Box]:
    size = FULL if len(column) == 1 else HALF
    top = (height - len(column) * size - (len(column) - 1) * BETWEEN) / 2
    for line, stage in enumerate(column):
        yield Box(stage, round(x, 3), round(width, 3), top + line * (size + BETWEEN), size)


def _between(left: Sequence[Box], right: Sequence[Box]) -> Iterator[Link]:
    """Columns of equal length are joined box to box; otherwise each box is joined to all of the next column."""
    pairs = zip(left, right, strict=True) if len(left) == len(right) else ((a, b) for a in left for b in right)
    for a, b in pairs:
        # What stands in front of a broken box does not flow; what a broken box should feed does not either.
        broken = "bad" in (a.stage.tone, b.stage.tone) and len(left) + len(right) > 2
        yield Link(round(a.x + a.width, 3), a.y + a.height / 2, b.y + b.height / 2, broken)
