"""What leaves the buffer when a month is dropped, and what has to leave with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count

from buffer.models import Batch, BufferedEvent
from buffer.partitioned import EVENTS
from config.partitions import Keep, Partition, PartitionSpec, living_keys
from outbox import counters
from outbox.models import FlowCounter, FlowMinute

CHUNK = 2000
MINUTES_KEPT = 24 * 60
SCOPE = "dropped:"


def count_dropped(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """Record, in the guarded section of the drop, how many rows of each stream and status go with it.

    Set, not added: a drop that crashed half-way is recorded again by the next run. Raises Keep when an order
    of the month waits in a parked batch.
    """
    scope = f"{SCOPE}{partition.key}"
    rows = spec.rows(using, partition).values_list("stream", "status").annotate(number=Count("id")).order_by()
    counts = []
    for stream, status, number in list(rows):
        if status in (BufferedEvent.Status.PENDING, BufferedEvent.Status.CLAIMED):
            raise Keep(f"{number} rows are {status}")
        counts.append(FlowCounter(flow=stream, scope=scope, name=f"dropped_{status}", value=number))
    recorded = FlowCounter.objects.using(using)
    recorded.filter(scope=scope).delete()
    recorded.bulk_create(counts)


def dropped_rows(stream: str) -> int:
    """How many rows of a stream were dropped with their months."""
    living = {f"{SCOPE}{key}" for key in living_keys(EVENTS)}
    rows = FlowCounter.objects.filter(flow=stream, scope__startswith=SCOPE).values_list("scope", "value")
    return sum(value for scope, value in rows if scope not in living)


def sweep_minutes(streams: Iterable[str], now: datetime) -> int:
    """Delete counts per minute that are older than a day."""
    oldest = counters.minute_of(now) - MINUTES_KEPT
    return FlowMinute.objects.filter(flow__in=list(streams), minute__lt=oldest).delete()[0]


def sweep_batches(now: datetime) -> int:
    """Delete, in chunks, sent and discarded batches whose newest order has left the buffer."""
    oldest = EVENTS.oldest(now.date())
    if oldest is None:
        return 0
    gone = Batch.objects.filter(partition_key__lt=EVENTS.value(oldest), status__in=("sent", "discarded"))
    deleted = 0
    while ids := list(gone.values_list("pk", flat=True)[:CHUNK]):
        deleted += gone.filter(pk__in=ids).delete()[0]
    return deleted
