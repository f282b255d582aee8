"""Conservation of the buffer: every record read is accounted for, and every accepted order is somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.db.models import Count, Sum

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.partitioned import EVENTS
from config.database.clock import database_now
from config.database.snapshot import consistent_snapshot
from config.flows import Check
from outbox.bookkeeping import counters
from outbox.bookkeeping.dropped_rows import dropped_rows
from outbox.bookkeeping.verify import every_record_has_an_outcome
from outbox.letters.verify import letters_counted

OUTCOMES = ("accepted", "redelivered", "superseded", "late", "parked")
OFFENDERS = 20


def checks(streams: list[str]) -> Iterator[Check]:
    """All invariants, in one snapshot."""
    with consistent_snapshot():
        # The events are read first: a month that is being dropped is then waited for. PostgreSQL would
        # otherwise show an older snapshot the counters from before the drop and an empty month.
        rows = {stream: _rows_by_status(stream) for stream in streams}
        for stream in streams:
            yield from _of_stream(stream, rows[stream])
        yield letters_counted(streams)


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
    batches = Batch.objects.unsent().of_streams([stream]).filter(supplement_of=None)
    in_batches = batches.aggregate(total=Sum("event_count"))["total"]
    yield Check(f"{stream}: claimed rows = orders of unsent batches", in_batches or 0, rows.get("claimed", 0))
    yield _every_order_has_its_batch(stream)
    yield _buckets_match(stream)
    yield _one_row_per_order(stream)
    unplaced = Batch.objects.sent().of_streams([stream]).filter(output_offset=None)
    yield Check(
        f"{stream}: every sent batch knows where it went",
        rows=list(unplaced.values_list("pk", flat=True)[:OFFENDERS]),
    )


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


def _one_row_per_order(stream: str) -> Check:
    orders = BufferedEvent.objects.of_stream(stream).values("order_id", "location_id")
    twice = orders.annotate(number=Count("id")).filter(number__gt=1).order_by()
    return Check(f"{stream}: no order in two months", rows=[dict(row) for row in twice[:OFFENDERS]])
