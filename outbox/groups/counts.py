"""Counts of groups: letters that arrive, leave or come back, and letters per hour."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import Case, F, Q, Sum, Value, When

from config.database.queries import delete_in_chunks
from config.database.upsert import Upsert
from config.fields import in_ascii
from config.telemetry.logs import RowIds, log, log_committed
from outbox.groups.fingerprint import LONGEST_TITLE, fingerprint_of, title_of
from outbox.groups.models import FailureGroup, GroupHour, GroupQuota, hour_of

# -- Letters per hour: the trend of many groups, the chart of one, and their retention -----------------------
KEPT_HOURS = 24 * 31


def arrived_by_hour(ids: Iterable[int], now: datetime, hours: int) -> dict[int, list[int]]:
    """`{group: letters of each of the last hours}`, oldest first; the last one is the hour under way."""
    first = hour_of(now) - hours + 1
    arrived = {pk: [0] * hours for pk in ids}
    rows = GroupHour.objects.of_groups(arrived).since(first).values_list("group_id", "hour", "arrived")
    for pk, hour, number in rows:
        if hour - first < hours:  # not what a clock that runs ahead has counted
            arrived[pk][hour - first] = number
    return arrived


LEAST_RISING = 4  # letters of an hour


def is_rising(now: int, before: int) -> bool:
    """More by a quarter, and more than a handful: 2 after 1 are no trend."""
    return now > max(LEAST_RISING, before * 1.25)


def arrived_in_all(now: datetime) -> tuple[tuple[int, int], tuple[int, int]]:
    """Letters that arrived in this hour and in the one before, and those that were closed then."""
    last = hour_of(now)
    rows = GroupHour.objects.since(last - 1).values_list("hour").annotate(came=Sum("arrived"), went=Sum("closed"))
    by_hour = {hour: (int(came), int(went)) for hour, came, went in rows}
    (came, went), (came_before, went_before) = by_hour.get(last, (0, 0)), by_hour.get(last - 1, (0, 0))
    return (came, came_before), (went, went_before)


def sweep_hours(now: datetime) -> int:
    """Delete hours and quotas older than a month; returns how many."""
    oldest = hour_of(now) - KEPT_HOURS
    old = GroupQuota.objects.filter(hour__lt=hour_of(now) - 1)
    return delete_in_chunks(GroupHour.objects.before(oldest)) + delete_in_chunks(old)


# -- Counts of groups when letters leave or come back: written with the letters, last in the transaction -----
State = FailureGroup.State
COUNT_CLOSED = Upsert(
    GroupHour, columns="group_id hour closed", key="group_id hour", update={"closed": "old.closed + new.closed"}
)


class Shift(NamedTuple):
    """What an action changes in a group's counts; `closed` letters were resolved or discarded."""

    open: int = 0
    requeued: int = 0
    closed: int = 0


def summed(changes: Iterable[tuple[int, Shift]]) -> dict[int, Shift]:
    """What many letters change, per group."""
    sums: dict[int, Shift] = {}
    for group, change in changes:
        sums[group] = Shift(*map(sum, zip(sums.get(group, Shift()), change, strict=True)))
    return sums


def shift(changes: Mapping[int, Shift], now: datetime) -> None:
    """Add `{group: Shift}` to the counts. A group whose last open or requeued letter is closed is resolved; a resolved
    one that gets an open letter back is as before.

    Inside the transaction that moved the letters, at its end; in the order in which arrivals lock groups.
    """
    groups = FailureGroup.objects.filter(pk__in=list(changes)).order_by("fingerprint").values_list("pk", flat=True)
    # One statement a group: that is how they are locked in this order on every database.
    for pk in groups:
        _shift_one(pk, changes[pk], now)
    closed = [(pk, hour_of(now), change.closed) for pk, change in sorted(changes.items()) if change.closed]
    COUNT_CLOSED.run(closed)
    # Letters that were taken back are counted elsewhere, and their groups stay as they are.
    if (ended := [pk for pk, change in changes.items() if change.open + change.requeued]) and log.isEnabledFor(
        logging.INFO
    ):
        _log(FailureGroup.objects.filter(pk__in=ended, state_since=now).values_list("pk", "source", "state"))


def _log(groups: Collection[Sequence[object]]) -> None:
    """One line of groups (id, source, state …) whose state this transaction has changed: only theirs has its time."""
    if groups:
        log_committed("groups_moved", groups=len(groups), ids=RowIds(groups, group=0, source=1, became=2))


def _shift_one(pk: int, change: Shift, now: datetime) -> None:
    opened, requeued = F("open_count") + change.open, F("requeued_count") + change.requeued
    empty = Q(open_count=-change.open, requeued_count=-change.requeued)
    ends = empty & ~Q(state__in=[State.RESOLVED, State.IGNORED])
    back = Q(state=State.RESOLVED) & ~empty
    before = Case(When(owner_name="", then=Value(State.OPEN.value)), default=Value(State.ACKNOWLEDGED.value))
    # The state first: MySQL assigns from left to right, and it reads the counts.
    FailureGroup.objects.filter(pk=pk).update(
        state_since=Case(When(ends | back, then=Value(now)), default=F("state_since")),
        state=Case(When(ends, then=Value(State.RESOLVED.value)), When(back, then=before), default=F("state")),
        open_count=opened,
        requeued_count=requeued,
    )


# -- Counts letters as they arrive ---------------------------------------------------------------------------
# Finds or makes the group of each, then adds them up, and opens again what was closed.
MOST_NEW = 200  # groups of a source in an hour; what comes beyond them is "other"
OTHER = "other"

# Whether this arrival ends the rest of a group; `new.total_count` of the letters arrive, `new.returned_count` of them
# because their own replay failed again.
RECURS = "old.state = 'resolved' AND new.total_count > new.returned_count"
REOPENS = "old.state = 'resolved'"
ENDS = (
    "old.state = 'ignored' AND (COALESCE(old.ignored_until <= new.last_seen, false)"
    " OR COALESCE(old.total_count + new.total_count >= old.ignored_total, false))"
)
OWNED = "CASE WHEN old.owner_name = '' THEN 'open' ELSE 'acknowledged' END"
# MySQL assigns from left to right: what reads a column stands before what changes it.
COUNT = Upsert(
    FailureGroup,
    columns="fingerprint source step reason title open_count total_count returned_count",
    constants="first_seen last_seen state_since",
    key="fingerprint",
    update={
        "state_since": f"CASE WHEN {REOPENS} OR {ENDS} THEN new.last_seen ELSE old.state_since END",
        "state": f"CASE WHEN {RECURS} THEN 'regressed' WHEN {REOPENS} OR {ENDS} THEN {OWNED} ELSE old.state END",
        "open_count": "old.open_count + new.open_count",
        "total_count": "old.total_count + new.total_count",
        "returned_count": "old.returned_count + new.returned_count",
        "last_seen": "CASE WHEN old.last_seen > new.last_seen THEN old.last_seen ELSE new.last_seen END",
    },
    returning="id source state state_since",
)
COUNT_HOUR = Upsert(
    GroupHour, columns="group_id hour arrived", key="group_id hour", update={"arrived": "old.arrived + new.arrived"}
)
MAKE_GROUP = Upsert(
    FailureGroup,
    columns="fingerprint source step reason title open_count total_count",
    constants="first_seen last_seen state_since",
    key="fingerprint",
    update={},
)
HOLD_QUOTA = Upsert(GroupQuota, columns="source hour", key="source hour", update={"made": "old.made + 0"})


class Cause(NamedTuple):
    """What letters of one group have in common."""

    source: str
    step: str
    reason: str
    template: str

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(*self)

    @property
    def title(self) -> str:
        return title_of(self.reason, self.template)

    @property
    def other(self) -> Cause:
        """The group of causes that came when the source had made as many groups as it may in an hour."""
        return Cause(self.source, OTHER, OTHER, "More causes than an hour may bring")


class PlainCause(Cause):
    """The same cause, with a title in ASCII."""

    @property
    def title(self) -> str:
        return str(in_ascii(super().title))[:LONGEST_TITLE]

    @property
    def other(self) -> Cause:
        return PlainCause(*super().other)


@dataclass(frozen=True)
class Group:
    """Where letters of a cause are counted: its own group, or the "other" of its source."""

    pk: int
    cause: Cause


def groups_for(causes: Iterable[Cause], now: datetime) -> dict[Cause, Group]:
    """The group of each cause; those that are missing are made, without letters, as far as the quota of the hour goes.

    Inside the transaction that then calls `count`.
    """
    wanted = {cause: cause for cause in causes}
    known = _known(wanted)
    unknown = [cause for cause in wanted if cause not in known]
    if unknown:
        placed = _within_quota(unknown, now)
        wanted |= placed
        made = {cause.fingerprint: cause for cause in placed.values()}
        rows = [(mark, *cause[:3], cause.title, 0, 0) for mark, cause in sorted(made.items())]
        MAKE_GROUP.run(rows, {"first_seen": now, "last_seen": now, "state_since": now})
        known = _known(wanted.values())
    return {cause: Group(known[place], place) for cause, place in wanted.items()}


def count_arrivals(arrived: Mapping[Group, tuple[int, int]], now: datetime) -> None:
    """Add `{group: (letters, those of them that a replay brought back)}`; call it last in a transaction.

    These rows are shared by all workers, so their locks must be short, and they are written in sorted order, so that
    two workers never deadlock.
    """
    arrivals = sorted((group.cause.fingerprint, group, *numbers) for group, numbers in arrived.items())
    rows = [(mark, *group.cause[:3], group.cause.title, new, new, back) for mark, group, new, back in arrivals]
    counted = COUNT.run(rows, {"first_seen": now, "last_seen": now, "state_since": now})
    since = str(connection.ops.adapt_datetimefield_value(now))  # rows are as the driver gives them: SQLite's has texts
    _log([group for group in counted if str(group[-1]) == since])
    COUNT_HOUR.run([(group.pk, hour_of(now), new) for _, group, new, _ in arrivals])


def _known(causes: Iterable[Cause]) -> dict[Cause, int]:
    marks = {cause.fingerprint: cause for cause in causes}
    groups = FailureGroup.objects.filter(fingerprint__in=marks).values_list("fingerprint", "pk")
    return {marks[mark]: pk for mark, pk in groups}


def _within_quota(unknown: Sequence[Cause], now: datetime) -> dict[Cause, Cause]:
    """Each cause itself, or the "other" of its source; what this spends is written."""
    hour = hour_of(now)
    sources = sorted({cause.source for cause in unknown})
    # Locks the rows: what others make meanwhile is committed and seen, or comes after us.
    HOLD_QUOTA.run([(source, hour) for source in sources])
    quotas = GroupQuota.objects.filter(source__in=sources, hour=hour)
    made = dict(quotas.values_list("source", "made"))
    known = _known(unknown)
    places = {}
    for cause in unknown:
        new = cause not in known
        places[cause] = cause.other if new and made[cause.source] >= MOST_NEW else cause
        made[cause.source] += new and places[cause] is cause
    for source in sources:
        quotas.filter(source=source).update(made=made[source])
    return places
