"""The figures above the list of groups, and what happened to one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, Sum

from outbox.groups import hours
from outbox.groups.models import FailureGroup


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


def figures(now: datetime) -> Figures:
    """Three queries, whatever there is."""
    needing = FailureGroup.objects.needing_work(now)
    total = FailureGroup.objects.with_open_letters().aggregate(letters=Sum("open_count"))["letters"]
    counts = needing.aggregate(all=Count("pk"), free=Count("pk", filter=Q(owner_name="")))
    (came, before), (went, _) = hours.of_all(now)
    longest = needing.filter(owner_name="").order_by("state_since").first()
    return Figures(now, int(total or 0), counts["all"], counts["free"], came, before, went, longest)


def history_of(group: FailureGroup) -> list[Happening]:
    """What the group itself remembers, newest first."""
    return sorted(_happenings(group), key=lambda one: one.when, reverse=True)


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
        return f"until {group.ignored_until:%Y-%m-%d %H:%M} UTC"
    return "until its open letters have doubled" if group.ignored_total else ""
