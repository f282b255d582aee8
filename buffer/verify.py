"""Conservation of the buffer: every record read is accounted for, and every accepted order is somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models import Count, F, Sum

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import verify as batches
from buffer.ingest.rebuild import is_under_way
from buffer.partitioned import EVENTS
from buffer.streams import GROUP
from buffer.streams import streams as all_streams
from config.database.chunks import by_key
from config.database.clock import database_now
from config.database.snapshot import consistent_snapshot
from config.digest import digest
from config.flows import Check
from config.kafka import topic_name
from config.kafka.positions import TopicPartition
from outbox.bookkeeping import counters
from outbox.bookkeeping.dropped_rows import dropped_rows
from outbox.bookkeeping.verify import (
    OFFENDERS,
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
)
from outbox.letters.verify import letters_counted

OUTCOMES = ("accepted", "redelivered", "superseded", "late", "parked")
CHUNK = 500
GRACE = timedelta(minutes=1)


def checks(streams: list[str]) -> Iterator[Check]:
    """All invariants, in one snapshot."""
    with consistent_snapshot():
        # The events are read first: a month that is being dropped is then waited for. PostgreSQL would
        # otherwise show an older snapshot the counters from before the drop and an empty month.
        rows = {stream: _rows_by_status(stream) for stream in streams}
        for stream in streams:
            yield from _of_stream(stream, rows[stream])
            yield from batches.checks(stream)
        yield letters_counted(streams)


def payload_checks() -> Iterator[Check]:
    """Each payload against the digest beside it: a row for itself, so no snapshot is needed."""
    yield _every_order_is_as_it_came()
    yield batches.every_batch_is_as_it_was_frozen()


def _rows_by_status(stream: str) -> dict[str, int]:
    """`{status: rows}` with one look at the unsent batches instead of one for each order."""
    events = BufferedEvent.objects.of_stream(stream)
    unsent = events.in_batches(Batch.objects.unsent()).count()
    rows = Counter({status: number for (_, status), number in events.counted().items()})
    return rows + Counter(claimed=unsent) - Counter(sent=unsent)


def _of_stream(stream: str, rows: dict[str, int]) -> Iterator[Check]:
    yield every_record_has_an_outcome(stream, OUTCOMES)
    totals = counters.totals(stream)
    accepted = f"{stream}: accepted = pending + claimed + sent + discarded + dropped"
    yield Check(accepted, totals.get("accepted", 0), sum(rows.values()) + dropped_rows(stream, EVENTS))
    yield Check(f"{stream}: open counter = pending rows", totals.get("open", 0), rows.get("pending", 0))
    unsent = Batch.objects.unsent().of_streams([stream]).filter(supplement_of=None)
    in_batches = unsent.aggregate(total=Sum("event_count"))["total"]
    yield Check(f"{stream}: claimed rows = orders of unsent batches", in_batches or 0, rows.get("claimed", 0))
    yield _every_order_has_its_batch(stream)
    yield _buckets_match(stream)
    yield _every_full_bucket_is_looked_at(stream)
    yield _one_row_per_order(stream)
    yield every_position_is_kept(stream, topic_name(GROUP), partial(_place_of, stream))
    yield no_partition_is_stopped(stream, topic_name(GROUP), [topic_name(all_streams()[stream].topic)])


def _place_of(stream: str, scope: str) -> TopicPartition | None:
    return (topic_name(all_streams()[stream].topic), int(scope)) if scope.isdigit() else None


def _every_order_has_its_batch(stream: str) -> Check:
    """An order whose batch was deleted reads as sent, so a batch must be kept as long as its newest month."""
    oldest = EVENTS.oldest(database_now().date())
    orphaned = BufferedEvent.objects.of_stream(stream).orphaned(
        Batch.objects.all(), EVENTS.value(oldest) if oldest else 0
    )
    found = orphaned.values("order_id", "location_id", "batch_id")[:OFFENDERS]
    return Check(f"{stream}: every claimed or sent order has its batch", rows=[dict(row) for row in found])


def _buckets_match(stream: str) -> Check:
    pending = BufferedEvent.objects.pending().of_stream(stream).per_location()
    counted = dict(Bucket.objects.of_stream(stream).filled().values_list("location_id", "open_count"))
    offenders = [
        {"location": location, "bucket": counted.get(location, 0), "rows": pending.get(location, 0)}
        for location in sorted(pending.keys() | counted.keys())
        if counted.get(location, 0) != pending.get(location, 0)
    ]
    name = f"{stream}: every bucket counts its pending rows"
    return Check(name, sum(counted.values()), sum(pending.values()), offenders[:OFFENDERS])


def _every_full_bucket_is_looked_at(stream: str) -> Check:
    """Nobody looks at a bucket without a time, and not soon enough at one whose time lies behind its cap."""
    filled = Bucket.objects.of_stream(stream).filled().running()
    latest = database_now() + all_streams()[stream].idle + GRACE
    late = filled.filter(due_at__gt=F("cap_at")).filter(due_at__gt=latest)
    lost = filled.filter(due_at=None) | late
    rows: Any = lost.order_by("pk").values("location_id", "open_count", "due_at")[:OFFENDERS]
    return Check(f"{stream}: every filled bucket is held or due", rows=[] if is_under_way(stream) else list(rows))


def _every_order_is_as_it_came() -> Check:
    orders = BufferedEvent.objects.values_list("pk", "payload_hash", "payload", "order_id", "location_id")
    changed = [
        {"order": order, "location": location}
        for chunk in by_key(orders, CHUNK)
        for _, known, payload, order, location in chunk
        if digest(payload.encode()) != known
    ]
    return Check("buffer: every order has the payload that was taken", rows=changed[:OFFENDERS])


def _one_row_per_order(stream: str) -> Check:
    orders = BufferedEvent.objects.of_stream(stream).values("order_id", "location_id")
    twice = orders.annotate(number=Count("id")).filter(number__gt=1).order_by()
    return Check(f"{stream}: no order in two months", rows=[dict(row) for row in twice[:OFFENDERS]])
