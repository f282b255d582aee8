"""The figures of a group: its numbers, its letters per hour, where its newest letters come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import BinaryField, F, Func, QuerySet, Value
from django.utils import timezone
from django.utils.safestring import SafeString

from config.admin import humanize, svg
from config.database.queries import through
from config.kafka.records import shown_headers
from outbox.admin.groups.filters import GroupCounts
from outbox.groups import counts as hours
from outbox.groups.counts import is_rising
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter


# -- Figures above the list, history -------------------------------------------------------------------------
@dataclass(frozen=True)
class Figures:
    """Counted from what groups keep: letters open, groups that need work, letters of this hour and the one before."""

    now: datetime
    open_letters: int
    needing: int
    without_owner: int
    came: int
    came_before: int
    went: int
    longest: FailureGroup | None  # without an owner since

    @property
    def more_come(self) -> bool:
        return self.came > self.came_before


@dataclass(frozen=True)
class Happening:
    """A line of a group's history."""

    tone: str
    icon: str
    what: str
    when: datetime
    rest: str = ""


def figures(now: datetime, by_state: Iterable[GroupCounts]) -> Figures:
    """Two queries, whatever there is."""
    _groups, letters, needing, free = map(sum, zip(GroupCounts(0, 0, 0, 0), *by_state, strict=True))
    (came, before), (went, _) = hours.arrived_in_all(now)
    longest = FailureGroup.objects.needing_work(now).filter(owner_name="").order_by("state_since").first()
    return Figures(now, letters, needing, free, came, before, went, longest)


def history_of(group: FailureGroup) -> list[Happening]:
    """What the group itself remembers, newest first."""
    return sorted(_happenings(group), key=lambda happening: happening.when, reverse=True)


def _happenings(group: FailureGroup) -> Iterator[Happening]:
    said = {
        FailureGroup.State.REGRESSED: ("bad", "undo", "Regressed", "a new letter came after the last one was closed"),
        FailureGroup.State.RESOLVED: ("ok", "tick", "Resolved", "its last letter was closed"),
        FailureGroup.State.ACKNOWLEDGED: ("info", "person", f"{group.owner_name or 'Somebody'} took it", ""),
        FailureGroup.State.IGNORED: ("idle", "dashed", "Ignored", _until(group)),
    }
    if group.total_count > 1:
        yield Happening("bad", "triangle", "Latest letter", group.last_seen, f"{group.total_count:,} until now")
    if group.state_since and (known := said.get(FailureGroup.State(group.state))):
        tone, icon, what, rest = known
        yield Happening(tone, icon, what, group.state_since, rest)
    if group.hint_at:
        yield Happening("info", "edit", f"{group.hint_by} wrote what to do", group.hint_at)
    yield Happening("bad", "triangle", "Group opened", group.first_seen, "its first letter came")


def _until(group: FailureGroup) -> str:
    if group.ignored_until:
        return f"until {humanize.stamp(group.ignored_until)}"
    return "until its open letters have doubled" if group.ignored_total else ""


# -- Where the newest letters come from ----------------------------------------------------------------------
NEWEST = 1000  # letters that are looked at
SHOWN = 3  # values of each kind
LEAST = 2  # letters that must share a value before it is said: one alone would be about one person
HEAD = 2048  # bytes of a mail that are read for its recipient
RECIPIENT = re.compile(rb'"to"\s*:\s*"[^"@\\]*@([^"@\\]{1,100})"')
# What a header of a letter says about where it comes from, in the words of the page.
HEADERS = {"event_type": "events", "channel": "channels"}


@dataclass(frozen=True)
class Origins:
    """The values of one kind, the most common first; `others` letters have `kinds` other values."""

    kind: str
    values: Sequence[tuple[str, int]]
    kinds: int = 0
    others: int = 0


@dataclass(frozen=True)
class Found:
    """What `looked_at` letters have in common; `standing_out` is the one fact about most of them."""

    looked_at: int
    origins: Sequence[Origins]

    @property
    def bounded(self) -> bool:
        return self.looked_at >= NEWEST

    @property
    def standing_out(self) -> tuple[str, int] | None:
        """A value that more than half share beside others."""
        for origins in self.origins:
            value, number = origins.values[0]
            if origins.kinds + len(origins.values) > 1 and number * 2 > self.looked_at:
                return value, number
        return None


def origins_of(group_id: int) -> Found:
    """Of the newest open letters of a group; of all its letters where none is open."""
    letters = DeadLetter.objects.of_group(group_id)
    newest = _newest(letters.open(), "deadletter_group") or _newest(letters, "deadletter_of_group")
    counters: dict[str, Counter[str]] = {}
    for kind, value in _traits(newest):
        counters.setdefault(kind, Counter())[value] += 1
    return Found(len(newest), [shared for kind, counter in counters.items() if (shared := _shared(kind, counter))])


def head_of_payload() -> Func:
    """The first bytes of the payload: a letter may hold megabytes."""
    return Func(F("payload"), Value(1), Value(HEAD), function="SUBSTR", output_field=BinaryField())


def _newest(letters: QuerySet[DeadLetter], index: str) -> list[tuple[UUID, str, int | None]]:
    """(id, topic, partition). Not by a list of ids: MySQL plans a thousand of them once an index, longer than all else takes."""
    with through(DeadLetter, index):
        return list(letters.order_by("-id").values_list("pk", "topic", "partition")[:NEWEST])


def _traits(newest: Iterable[tuple[UUID, str, int | None]]) -> Iterator[tuple[str, str]]:
    """(kind, value) of each letter: the partition that it came from, or what its message says."""
    promised = []
    for pk, topic, partition in newest:
        if not topic:
            promised.append(pk)
        elif (partition or 0) >= 0:
            yield "partitions", f"{topic}/{partition}"
    if promised:  # of a record from Kafka neither headers nor payload are read
        with through(DeadLetter, "PRIMARY"):
            rows = list(DeadLetter.objects.filter(pk__in=promised).values_list("headers", head_of_payload()))
        for headers, head in rows:
            yield from _of_message(headers, bytes(head or b""))


def _of_message(headers: Iterable[Sequence[str]], head: bytes) -> Iterator[tuple[str, str]]:
    if recipient := RECIPIENT.search(head):
        yield "domains", recipient[1].decode("utf-8", "replace").lower()
    for name, value in shown_headers(headers):
        if name in HEADERS and value:
            yield HEADERS[name], value


def _shared(kind: str, counter: Counter[str]) -> Origins | None:
    """None where nothing is shared."""
    common = [(value, number) for value, number in counter.most_common(SHOWN) if number >= LEAST]
    rest = len(counter) - len(common)
    others = sum(counter.values()) - sum(number for _, number in common)
    return Origins(kind, common, rest, others) if common else None


# -- Letters per hour ----------------------------------------------------------------------------------------
DAY, TWO_DAYS, WEEK = 24, 48, 168  # hours


class Trend(NamedTuple):
    """Small bars, and what stands below them."""

    drawing: SafeString
    words: str


@dataclass(frozen=True)
class HourChart:
    """Bars, scale, times, and the finding in words."""

    plot: SafeString
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
    label = f"Letters in each of {len(hours)} hours, at most {most} in one; {words}"
    bars = svg.in_one_path(svg.bars(hours))
    return Trend(svg.chart(f"sw-bars sw-{'bad' if rising else 'idle'}", [bars], label, width=78, height=18), words)


def chart_of(hours: Sequence[int], now: datetime) -> HourChart:
    """The chart of one group."""
    top = svg.nice(max(2, *hours))
    last, before = hours[-1], hours[-2]
    rising = is_rising(last, before)
    begin = "Rising: " if rising else ""
    caption = f"{begin}{humanize.plural(last, 'letter', 'letters')} this hour, {before:,} in the hour before."
    bars = svg.bars(hours, top)  # if letters rise, the last one is the hour under way
    shapes = [svg.element("rect", css="sw-now" if rising and bar is bars[-1] else "", **bar._asdict()) for bar in bars]
    drawing = svg.chart("sw-hours", [svg.grid(), *shapes], heading="hours")
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    below = svg.times(end - timedelta(hours=len(hours)), end, "%a %H:%M", now=svg.WIDTH)
    plot = svg.plot(f"{top:,.0f}", f"{top / 2:,.0f}", drawing, below)
    return HourChart(plot, rising, caption, _first(hours, now))


def _first(hours: Sequence[int], now: datetime) -> str:
    """Since when there have been letters in these hours."""
    at = next((place for place, number in enumerate(hours) if number), None)
    if at is None:
        return f"None in {humanize.plural(len(hours), 'hour', 'hours')}."
    if at == 0:
        return ""
    hour = now.astimezone(UTC).replace(minute=0) - timedelta(hours=len(hours) - 1 - at)
    moment = timezone.localtime(hour)
    return f"None in the {humanize.plural(at, 'hour', 'hours')} before {moment:%A %H:%M}."
