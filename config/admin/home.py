"""Home: a headline, what needs a person, and the flows drawn with live numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from config.flows import Need, Picture, Stage, flows
from config.partitions import rotation

# -- A flow as a drawing: boxes in columns, lines between them, in percent across and pixels down ------------
# Across everything is relative, so that the drawing fits any width and its text keeps its size.
FULL, HALF, BETWEEN = 86, 52, 14
GAP = 3.6  # percent between two columns
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
    width: float = GAP


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
    width = (100 - GAP * (len(columns) - 1)) / max(1, len(columns))
    placed = [list(_column(column, at * (width + GAP), width, height)) for at, column in enumerate(columns)]
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


def points(trend: Sequence[float], width: float, height: float) -> str:
    """A polyline through `trend`, its lowest value at the bottom; a flat row is a line in the middle."""
    low, high = min(trend), max(trend)
    step = width / (len(trend) - 1)
    if high == low:
        return f"0,{height / 2:g} {width:g},{height / 2:g}"
    return " ".join(
        f"{at * step:.1f},{height - (value - low) / (high - low) * height:.1f}" for at, value in enumerate(trend)
    )


# -- Home: a headline, what needs a person, and the flows drawn with live numbers ----------------------------
URGENCIES = ("now", "soon", "watch")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
REFRESH_SECONDS = 10
FAR_PAST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class FlowRow:
    """One flow on home."""

    picture: Picture
    drawing: Drawing


def home(now: datetime) -> dict[str, Any]:
    """The context of the page; numbers come from maintained counters, never from counting rows."""
    pictures = [picture for flow in flows() if (picture := flow.picture(now))]
    # Several flows may need the same: Kafka is away for all of them.
    needs = by_urgency(
        dict.fromkeys([*(need for picture in pictures for need in picture.needs), *rotation.runway_needs(now)])
    )
    return {
        "now": now,
        "needs": needs,
        "headline": headline(needs),
        "quiet": quiet(pictures),
        "flows_title": flows_title(len(pictures)),
        "rows": [FlowRow(picture, draw(picture.stages)) for picture in pictures],
        "refresh_seconds": REFRESH_SECONDS,
    }


def by_urgency(needs: Iterable[Need]) -> list[Need]:
    """Most urgent first; within an urgency loss of data, then people waiting; within those by place, then age."""
    return sorted(needs, key=lambda need: (URGENCIES.index(need.urgency), need.rank, need.place, _onset(need)))


def _onset(need: Need) -> timedelta:
    # What runs out soonest stands beside what has lasted longest.
    return (need.since or need.until or FAR_PAST) - FAR_PAST


def headline(needs: Sequence[Need]) -> tuple[str, str]:
    """`7 things need you`, `3 of them now`: the bold words and the rest."""
    urgent = sum(need.urgency == "now" for need in needs)
    if not needs:
        return "Nothing needs you", ""
    if len(needs) == 1:
        return "1 thing needs you", ", now" if urgent else ""
    rest = f", {urgent} of them now" if 0 < urgent < len(needs) else ", all of them now" if urgent else ""
    return f"{len(needs)} things need you", rest


def quiet(pictures: Sequence[Picture]) -> str:
    """What stands there when nothing needs a person."""
    if not pictures:
        return "No flow is configured."
    runs = "The flow runs" if len(pictures) == 1 else f"All {_number(len(pictures))} flows run"
    return f"{runs}, no failure group is open."


def flows_title(number: int) -> str:
    return "The flow" if number == 1 else f"The {_number(number)} flows"


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)
