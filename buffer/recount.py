"""Buckets counted anew from their pending rows: after rows were settled in bulk, or a rebuild."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count

from buffer.models import Bucket, BufferedEvent
from buffer.streams import Stream

CHUNK = 500


def recount_buckets(stream: Stream, locations: Iterable[str], now: datetime) -> int:
    """Set the open counts of these locations; locks buckets in order.

    Returns by how much the flow's own count of open orders has to change: the caller's last statement.
    """
    ordered = sorted(locations)
    change = 0
    for start in range(0, len(ordered), CHUNK):
        part = ordered[start : start + CHUNK]
        buckets = {b.location_id: b for b in Bucket.objects.select_for_update().of_stream(stream.name)
                   .filter(location_id__in=part).order_by("location_id")}  # fmt: skip
        counted = dict(
            BufferedEvent.objects.pending().at(stream.name, part).values_list("location_id")
            .annotate(number=Count("id")).order_by()
        )  # fmt: skip
        for location, bucket in buckets.items():
            number = counted.get(location, 0)
            change += number - bucket.open_count
            if number == 0:
                empty = {"open_count": 0, "due_at": None, "urged": "", "first_arrival": None, "cap_at": None}
                Bucket.objects.filter(pk=bucket.pk).update(**empty)
            elif number != bucket.open_count:
                Bucket.objects.filter(pk=bucket.pk).update(open_count=number)
    return change
