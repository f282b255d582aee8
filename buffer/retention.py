"""What is counted and deleted when a month of the buffer is dropped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from buffer.events.models import Batch
from buffer.partitioned import EVENTS
from config.database.chunks import delete_in_chunks
from config.partitions import Partition, PartitionSpec
from outbox.bookkeeping import counters, dropped_rows
from outbox.bookkeeping.models import FlowMinute

MINUTES_KEPT = 24 * 60


def count_dropped(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """Record, in the guarded section of the drop, how many rows of each stream and status go with it.

    No order of the month is in an unsent batch, as the guard has just checked: claimed ones count as sent.
    """
    rows: Any = spec.rows(using, partition)
    dropped_rows.record(using, partition, rows.counted())


def sweep_minutes(streams: Iterable[str], now: datetime) -> int:
    """Delete counts per minute that are older than a day."""
    oldest = counters.minute_of(now) - MINUTES_KEPT
    return FlowMinute.objects.filter(flow__in=list(streams), minute__lt=oldest).delete()[0]


def sweep_batches(now: datetime) -> int:
    """Delete sent and discarded batches whose newest order has left the buffer."""
    oldest = EVENTS.oldest(now.date())
    if oldest is None:
        return 0
    gone = Batch.objects.filter(partition_key__lt=EVENTS.value(oldest), status__in=("sent", "discarded"))
    return delete_in_chunks(gone)
