"""The daily round: partitions, and the small tables that live in none."""

from __future__ import annotations

from config.clock import database_now
from config.flows import flows
from config.partitions import rotate
from outbox import counters
from outbox.models import FlowMinute

MINUTES_KEPT = 24 * 60


def rotate_and_sweep() -> str:
    """Rotate every partitioned table, then sweep; returns a line that says what was done."""
    plans = rotate()
    now = database_now()
    swept = sum(flow.sweep(now) for flow in flows())
    swept += FlowMinute.objects.filter(minute__lt=counters.minute_of(now) - MINUTES_KEPT).delete()[0]
    failures = [line for plan in plans for line in plan.failures]
    return "; ".join([*failures, f"{len(plans)} tables rotated, {swept} rows swept"])
