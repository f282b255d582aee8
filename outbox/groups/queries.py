"""Queries about failure groups and their hours."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import models
from django.db.models import F, Q

HOUR = 3600


def hour_of(now: datetime) -> int:
    """Hours since 1970."""
    return int(now.timestamp() // HOUR)


def ignored_long_enough(now: datetime) -> Q:
    """Groups whose time to be ignored is over, or whose count has doubled; as `FailureGroup.shown_state`."""
    late = Q(ignored_until__isnull=False, ignored_until__lte=now)
    many = Q(ignored_total__isnull=False, total_count__gte=F("ignored_total"))
    return Q(state="ignored") & (late | many)  # never NULL, so that it can be negated


class FailureGroupQuerySet(models.QuerySet):
    """Failure groups. There are few; their counts are stored, never computed for a page."""

    def with_open_letters(self) -> FailureGroupQuerySet:
        return self.filter(open_count__gt=0)

    def needing_work(self, now: datetime | None = None) -> FailureGroupQuerySet:
        """Those with open letters; with `now` without those that are ignored at that time."""
        found = self.with_open_letters()
        return found if now is None else found.exclude(Q(state="ignored") & ~ignored_long_enough(now))

    def in_state(self, state: str, now: datetime, in_work: Collection[int] = ()) -> FailureGroupQuerySet:
        """Those that a page shows in this state at that time (`FailureGroup.shown_state`)."""
        resolving = Q(pk__in=in_work) | Q(open_count=0, requeued_count__gt=0)
        if state == "resolving":
            return self.filter(resolving)
        over = ignored_long_enough(now)
        shown = Q(state=state) & ~over
        if state in ("open", "acknowledged"):
            owned = ~Q(owner_name="") if state == "acknowledged" else Q(owner_name="")
            shown |= over & owned & Q(open_count__gt=0)
        elif state == "resolved":
            shown |= over & Q(open_count=0)
        return self.filter(shown).exclude(resolving)

    def takeable(self) -> FailureGroupQuerySet:
        """They have no owner, and something to work on."""
        return self.filter(owner_name="").workable()

    def workable(self) -> FailureGroupQuerySet:
        """They have letters that are open or on their way."""
        return self.filter(Q(open_count__gt=0) | Q(requeued_count__gt=0))

    def in_nobodys_hand(self) -> FailureGroupQuerySet:
        """Nobody works on them: whoever owns one that came back has not seen it yet."""
        return self.exclude(~Q(owner_name="") & ~Q(state__in=["regressed", "new"]))

    def owned(self) -> FailureGroupQuerySet:
        return self.exclude(owner_name="")

    def ignorable(self) -> FailureGroupQuerySet:
        """They are neither ignored for ever nor done with."""
        return self.with_open_letters()

    def of_sources(self, sources: Iterable[str]) -> FailureGroupQuerySet:
        return self.filter(source__in=list(sources))

    def locked_in_order(self, ids: Iterable[int]) -> FailureGroupQuerySet:
        """These groups, locked in the order in which arrivals lock them."""
        return self.filter(pk__in=list(ids)).order_by("fingerprint").select_for_update()


class GroupHourQuerySet(models.QuerySet):
    """Letters per group and hour."""

    def of_groups(self, ids: Iterable[int]) -> GroupHourQuerySet:
        return self.filter(group_id__in=list(ids))

    def since(self, hour: int) -> GroupHourQuerySet:
        return self.filter(hour__gte=hour)

    def before(self, hour: int) -> GroupHourQuerySet:
        return self.filter(hour__lt=hour)
