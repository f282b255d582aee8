"""What is counted and deleted when a month of the buffer is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from buffer.events.models import Batch
from buffer.partitioned import EVENTS
from config.database.chunks import in_chunks
from config.partitions import Partition, PartitionSpec
from outbox.bookkeeping import counters, dropped_rows
from outbox.bookkeeping.models import FlowMinute

MINUTES_KEPT = 24 * 60
BATCHES_SWEPT = "batches_swept"


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
    return sum(_delete_counted(chunk, now) for chunk in in_chunks(gone))


def _delete_counted(batches: QuerySet, now: datetime) -> int:
    """The sent ones are counted, so that `verify` still knows how many there were."""
    with transaction.atomic():
        sent = Counter(batches.filter(status="sent").values_list("stream", flat=True))
        number = batches.delete()[0]
        counters.add({(stream, "flush", BATCHES_SWEPT): swept for stream, swept in sent.items()}, now)
    return number
