"""Deletes what the mirror no longer needs: lanes that are empty, old charts, owners that are gone."""

from __future__ import annotations

from datetime import datetime, timedelta

from config.database.chunks import delete_in_chunks
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowMinute
from throttler.lanes.mirror import FLOW
from throttler.lanes.models import CustomerPeriod, Lane, LaneOwner

EMPTY_FOR = timedelta(hours=1)
MINUTES_KEPT = 24 * 60
PERIODS_KEPT = timedelta(days=7)
GONE_FOR = timedelta(days=1)


def sweep(now: datetime) -> int:
    """Delete in chunks; returns how many rows went. Safe beside owners: a lane that fills again is inserted again."""
    return (
        delete_in_chunks(Lane.objects.filter(backlog=0, updated_at__lt=now - EMPTY_FOR))
        + delete_in_chunks(CustomerPeriod.objects.filter(start__lt=now - PERIODS_KEPT))
        + delete_in_chunks(FlowMinute.objects.filter(flow=FLOW, minute__lt=counters.minute_of(now) - MINUTES_KEPT))
        + _sweep_owners(now)
    )


def _sweep_owners(now: datetime) -> int:
    """Those that are silent for a day, and whose partitions somebody reports who is not."""
    gone = now - GONE_FOR
    reported = {number for owner in LaneOwner.objects.filter(updated_at__gte=gone) for number in owner.partitions}
    silent = LaneOwner.objects.filter(updated_at__lt=gone)
    ids = [owner.pk for owner in silent if set(owner.partitions) <= reported]
    # Whoever reports meanwhile stays.
    return silent.filter(pk__in=ids).delete()[0] if ids else 0
