"""An order that no batch can hold, because the database or its stream refuses it, becomes a letter."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max

from buffer.events.models import Bucket, BufferedEvent
from buffer.flush.freeze import Claimed
from buffer.streams import GROUP, Stream
from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.kafka import Replayed, topic_name
from config.telemetry.logs import log
from config.telemetry.redaction import said, trace_of
from outbox.bookkeeping import counters
from outbox.letters.burial import Letter, bury
from outbox.letters.models import BurialKey, DeadLetter

STEP = "cut"


class Unfrozen(Exception):
    """A stream has not made a message of orders that its gate has let through."""


def is_refusal(error: BaseException) -> bool:
    """Whether the orders are what is wrong: other ones may be cut."""
    return isinstance(error, Unfrozen) or remedy_for(error) is Remedy.DATA


def set_aside(stream: Stream, bucket: int, event: Claimed, error: BaseException) -> bool:
    """Discard an order that cannot be cut, with a letter that gives it back; False when it changed meanwhile."""
    with transaction.atomic():
        now = database_now()
        locked = Bucket.objects.filter(pk=bucket).lock_free().exists()
        same = {"pk": event.id, "payload_hash": event.payload_hash, "source_offset": event.source_offset}
        pending = BufferedEvent.objects.pending().in_months([event.partition_key]).filter(**same)
        order = pending.lock_free().first() if locked else None
        if order is None:
            return False
        if pending.update(status=BufferedEvent.Status.DISCARDED, updated_at=now) != 1:
            raise RuntimeError(f"order {event.id} is locked, and not set aside")
        Bucket.objects.filter(pk=bucket).shrink(1)
        if not bury([_letter(stream, order, error)], topic_name(GROUP), now):
            raise RuntimeError(f"order {event.id} was set aside without a letter")
        counters.add({(stream.name, "flush", "open"): -1, (stream.name, "flush", "discarded"): 1}, now)
    about = {"stream": stream.name, "order_id": event.order_id, "location": event.location_id}
    log.error("order_set_aside", **about, error=str(error).strip())
    return True


def _letter(stream: Stream, order: BufferedEvent, error: BaseException) -> Letter:
    """The record as it came, at its place; of the next revision where it was set aside before."""
    topic, partition, offset = topic_name(stream.topic), order.source_partition, order.source_offset
    place = {"topic": topic, "topic_id": order.topic_id, "partition": partition, "offset": offset}
    known = BurialKey.objects.filter(**place, group=topic_name(GROUP), step=STEP).aggregate(last=Max("revision"))
    # Whichever letter gave it back: what became of that one is this.
    before = DeadLetter.objects.filter(**place, status="requeued").order_by("-requeued_at", "-pk").first()
    record = Replayed(
        topic, partition, offset, order.source_timestamp, order.location_id.encode(), order.payload.encode()
    )
    return Letter(
        stream.name,
        STEP,
        "cannot_be_summed" if isinstance(error, Unfrozen) else "database_refused",
        said(error),
        record,
        order.topic_id,
        0 if known["last"] is None else known["last"] + 1,
        type(error.__cause__ or error).__name__,
        trace_of(error),
        order.order_id,
        predecessor=before.pk if before else None,
    )
