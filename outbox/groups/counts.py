"""Counts of groups when letters leave or come back: written with the letters, last in the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from django.db.models import Case, F, Q, Value, When

from config.database.upsert import Upsert
from outbox.groups.models import FailureGroup, GroupHour
from outbox.groups.queries import hour_of

State = FailureGroup.State
COUNT_CLOSED = Upsert(
    GroupHour,
    columns="group_id hour closed",
    key="group_id hour",
    update={"closed": "old.closed + new.closed"},
)


class Shift(NamedTuple):
    """What a deed changes in a group's counts; `closed` letters were resolved or discarded."""

    open: int = 0
    requeued: int = 0
    closed: int = 0


def summed(changes: Iterable[tuple[int, Shift]]) -> dict[int, Shift]:
    """What many letters change, per group."""
    found: dict[int, Shift] = {}
    for group, change in changes:
        found[group] = Shift(*map(sum, zip(found.get(group, Shift()), change, strict=True)))
    return found


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
