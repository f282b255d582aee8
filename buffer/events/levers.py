"""The levers of the buffer: flush now, hold, release, withdraw; the same for the admin and for commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from buffer.events.models import Bucket, BufferedEvent
from config.admin.levers import Operator
from config.database.clock import database_now
from config.telemetry.logs import RowIds, log_committed
from outbox.audit_log import actions
from outbox.bookkeeping import counters


def flush_now(bucket_ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Make these buckets due at once; empty and held ones are left alone. Returns how many changed."""
    with transaction.atomic():
        changed = Bucket.objects.filter(pk__in=bucket_ids).urge(database_now())
        return _done(operator, "flush now", bucket_ids, changed, reason)


def hold(bucket_ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Cut nothing from these buckets until they are released; events go on arriving."""
    with transaction.atomic():
        changed = Bucket.objects.filter(pk__in=bucket_ids).hold()
        return _done(operator, "hold", bucket_ids, changed, reason)


def release(bucket_ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Let held buckets run; what waits there is due at once."""
    with transaction.atomic():
        changed = Bucket.objects.filter(pk__in=bucket_ids).release(database_now())
        return _done(operator, "release", bucket_ids, changed, reason)


def withdraw(event_ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Discard orders that no batch has claimed yet. Returns how many were still pending."""
    with transaction.atomic():
        now = database_now()
        # Ingesters lock events before buckets; so does this.
        rows = list(BufferedEvent.objects.select_for_update().pending().filter(pk__in=event_ids))
        months = {row.partition_key for row in rows}
        pending = BufferedEvent.objects.pending().in_months(months).filter(pk__in=[row.pk for row in rows])
        changed = pending.update(status=BufferedEvent.Status.DISCARDED, updated_at=now)
        if changed != len(rows):
            # Locked rows cannot change under us; if they did, nothing of this transaction may stay.
            raise RuntimeError(f"withdrew {changed} of {len(rows)} locked orders")
        _shrink_buckets(rows, now)
        if rows:
            ids = RowIds(rows, order_id="order_id", stream="stream", location_id="location_id")
            log_committed("orders_withdrawn", orders=len(rows), by=operator.name, ids=ids)
        orders = [f"{row.order_id} at {row.location_id}" for row in rows]
        return _done(operator, "withdraw", event_ids, changed, reason, orders=orders)


def _shrink_buckets(rows: Sequence[BufferedEvent], now: datetime) -> None:
    withdrawn = Counter((row.stream, row.location_id) for row in rows)
    for (stream, location), number in sorted(withdrawn.items()):
        Bucket.objects.of_stream(stream).filter(location_id=location).shrink(number)
    counts: Counter[tuple[str, str, str]] = Counter()
    for (stream, _location), number in withdrawn.items():
        counts[stream, "withdrawn", "open"] -= number
        counts[stream, "withdrawn", "discarded"] += number
    counters.add(counts, now)


def _done(operator: Operator, verb: str, ids: Sequence[int], changed: int, reason: str, **detail: object) -> int:
    if changed:
        model = "bufferedevent" if verb == "withdraw" else "bucket"
        actions.record(
            operator, verb, _subject(verb, ids), reason=reason, rows=changed,
            detail={**detail, "ids": list(ids)[:1000]}, subject_type=f"buffer.{model}", subject_ids=ids,
        )  # fmt: skip
    return changed


def _subject(verb: str, ids: Sequence[int]) -> str:
    """What was acted on, in words: "WH-42", or "WH-42 and 2 more"."""
    model, column = (BufferedEvent, "order_id") if verb == "withdraw" else (Bucket, "location_id")
    first = model.objects.filter(pk__in=ids).order_by("pk").values_list(column, flat=True).first() or "nothing"
    return first if len(ids) == 1 else f"{first} and {len(ids) - 1} more"
