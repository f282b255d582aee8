"""Home: a headline, what needs a person, and the flows drawn with live numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.utils.text import Truncator

from config.admin import humanize
from config.admin.svg import Drawing, draw
from config.causes import causes_first
from config.database.queries import asked_together
from config.flows import HomeRow, Kin, Need, flows
from config.partitions import rotation

URGENCIES = ("now", "soon", "watch")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
REFRESH_SECONDS = 10
MOST_OF_TITLE = 60  # characters, of what follows: the cause says the rest
FAR_PAST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class FlowRow:
    """One flow on home."""

    picture: HomeRow
    drawing: Drawing


def home(now: datetime) -> dict[str, object]:
    """The context of the page; numbers come from maintained counters, never from counting rows."""
    pictures = pictures_of(now)
    needs = by_urgency(need for need in explained(needs_of(pictures, now)) if need.news and not need.quiet)
    return {
        "now": now,
        "needs": needs,
        "lines": shortened(needs),
        "headline": headline(needs),
        "quiet": quiet(pictures),
        "flows_title": "The flow" if len(pictures) == 1 else f"The {_number(len(pictures))} flows",
        "rows": [FlowRow(picture, draw(picture.stages)) for picture in pictures],
        "refresh_seconds": REFRESH_SECONDS,
    }


def pictures_of(now: datetime) -> list[HomeRow]:
    """What each flow shows: positions, counts and failure groups are read once for all of them."""
    with asked_together():
        return [picture for flow in flows() if (picture := flow.home_row(now))]


def needs_of(pictures: Iterable[HomeRow], now: datetime) -> list[Need]:
    """What needs people, once each: several flows may need the same, as when Kafka is away for all of them."""
    flows_need = (need for picture in pictures for need in picture.needs)
    return list(dict.fromkeys([*flows_need, *rotation.partition_needs(now)]))


def needs_one_by_one(now: datetime) -> list[Need]:
    """The same as home shows, most urgent first, with those that it only counts: for those who are told."""
    return by_urgency(explained(needs_of(pictures_of(now), now)))


def explained(needs: Sequence[Need]) -> Iterator[Need]:
    """Causes say what follows from them, and are as urgent as that; what follows is no news."""
    for cause, following in causes_first(needs):
        urgency = min((need.urgency for need in (cause, *following)), key=URGENCIES.index)
        titles = tuple(Truncator(need.title).chars(MOST_OF_TITLE) for need in following if not need.quiet)
        yield replace(cause, urgency=urgency, follows=titles) if following else cause
        yield from (replace(need, news=False) for need in following)


def still_so(names: Iterable[tuple[str, str]], now: datetime) -> set[tuple[str, str]]:
    """Which of these needs (kind, key) are not over although no list names them: one question a kind, for all of its keys."""
    keys: dict[str, list[str]] = defaultdict(list)
    for kind, key in names:
        keys[kind].append(key)
    return {(kind, key) for kind in keys for flow in flows() for key in flow.still_so(kind, keys[kind], now)}


def by_urgency(needs: Iterable[Need]) -> list[Need]:
    """Most urgent first; within an urgency loss of data, then people waiting; within those by place, then age."""
    return sorted(needs, key=lambda need: (URGENCIES.index(need.urgency), need.rank, need.place, _onset(need)))


def shortened(needs: Sequence[Need]) -> list[tuple[Need, int]]:
    """Of needs that are kin the first few; the last of these with how many more there are."""
    left = Counter(need.kin for need in needs)
    shown: Counter[Kin] = Counter()
    lines = []
    for need in needs:
        more = 0
        if need.kin:
            shown[need.kin] += 1
            if shown[need.kin] > need.kin.most:
                continue
            more = left[need.kin] - need.kin.most if shown[need.kin] == need.kin.most else 0
        lines.append((need, more))
    return lines


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


def quiet(pictures: Sequence[HomeRow]) -> str:
    """What stands there when nothing needs a person."""
    if not pictures:
        return "No flow is configured."
    runs = "The flow runs" if len(pictures) == 1 else f"All {_number(len(pictures))} flows run"
    left = sum(picture.letters_open for picture in pictures)
    if not left:
        return f"{runs}, no failure group is open."
    return f"{runs}, {humanize.plural(left, 'open letter is in hand', 'open letters are in hand')} or ignored."


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)
