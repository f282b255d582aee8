"""Letters per hour: the trend of many groups, the chart of one, and their retention."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Sum

from config.database.chunks import delete_in_chunks
from outbox.groups.models import GroupHour, GroupQuota
from outbox.groups.queries import hour_of

KEPT_HOURS = 24 * 31


def arrived(ids: Iterable[int], now: datetime, hours: int) -> dict[int, list[int]]:
    """`{group: letters of each of the last hours}`, oldest first; the last one is the hour under way."""
    first = hour_of(now) - hours + 1
    found = {pk: [0] * hours for pk in ids}
    rows = GroupHour.objects.of_groups(found).since(first).values_list("group_id", "hour", "arrived")
    for pk, hour, number in rows:
        if hour - first < hours:  # not what a clock that runs ahead has counted
            found[pk][hour - first] = number
    return found


def of_all(now: datetime) -> tuple[tuple[int, int], tuple[int, int]]:
    """Letters that arrived in this hour and in the one before, and those that were closed then."""
    last = hour_of(now)
    rows = GroupHour.objects.since(last - 1).values_list("hour").annotate(came=Sum("arrived"), went=Sum("closed"))
    found = {hour: (int(came), int(went)) for hour, came, went in rows}
    (came, went), (came_before, went_before) = found.get(last, (0, 0)), found.get(last - 1, (0, 0))
    return (came, came_before), (went, went_before)


def sweep(now: datetime) -> int:
    """Delete hours and quotas older than a month; returns how many."""
    oldest = hour_of(now) - KEPT_HOURS
    old = GroupQuota.objects.filter(hour__lt=hour_of(now) - 1)
    return delete_in_chunks(GroupHour.objects.before(oldest)) + delete_in_chunks(old)
