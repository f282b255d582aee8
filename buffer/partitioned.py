"""Which tables of this app are partitioned by time, which months are kept, and what goes with a month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from buffer.events.models import UNSENT, Batch
from config.database.queries import in_chunks
from config.partitions import Partition, PartitionSpec
from config.telemetry.logs import log_committed
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowMinute

# -- Which months the buffer keeps: orders outside of them are dead letters, never an error loop -------------
AHEAD = 3


def retained_months(now: datetime) -> tuple[int, int]:
    """The first and the last month (yyyymm) that the buffer keeps."""
    return add_months(now, -settings.BUFFER_RETENTION_MONTHS), add_months(now, AHEAD)


def add_months(now: datetime, months: int) -> int:
    """The month `months` away from `now`, as yyyymm."""
    year, month = divmod(now.year * 12 + now.month - 1 + months, 12)
    return year * 100 + month + 1


# -- Which tables of this app are partitioned by time, and what keeps a partition alive ----------------------
EVENTS = PartitionSpec(
    model="buffer.BufferedEvent",
    column="partition_key",
    period="month",
    encoding="yyyymm",
    # One more than ingestion accepts: a new month begins before the day's rotation has run.
    ahead=4,
    keep_months_setting="BUFFER_RETENTION_MONTHS",
    unfinished=f"status = 'pending' OR status = 'claimed' AND buffer_bufferedevent.batch_id IN ({UNSENT})",
    before_drop="buffer.partitioned.count_dropped",
    locks=("outbox.FlowCounter", "buffer.Batch"),
)


# -- What is counted and deleted when a month of the buffer is dropped ---------------------------------------
MINUTES_KEPT = 24 * 60
BATCHES_SWEPT = "batches_swept"


def count_dropped(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """Record, in the guarded section of the drop, how many rows of each stream and status go with it.

    No order of the month is in an unsent batch, as the guard has just checked: claimed ones count as sent.
    """
    rows: Any = spec.rows(using, partition)
    counters.record_dropped(using, partition, rows.counted())


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
        log_committed("batches_swept", batches=number)
    return number
