"""Why a bucket is due or not, why a batch was cut, why a lever does not move: in sentences."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.utils import timezone

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import STALE, caught_up_of, decide
from buffer.partitioned import retained_months
from buffer.streams import Stream, streams
from config.admin import humanize
from config.kafka import topic_name
from outbox.bookkeeping import counters

RULES = {
    "idle": "No order came for {idle}.",
    "cap": "Its oldest order had waited {cap}.",
    "size": "It held {max_batch:,} orders, the most a batch may have.",
    "pressure": "The event buffer was full, so every warehouse was flushed.",
    "manual": "Somebody asked for it.",
    "leftover": "The batch before it was full; what was left went at once.",
    "supplement": "A newer version of an order came after its batch was sent; this is the difference.",
}


def rule_of(batch: Batch) -> str:
    """The rule that made a batch due, with the limits as they are set now."""
    stream = streams().get(batch.stream)
    sentence = RULES.get(batch.reason, batch.reason)
    return sentence.format(**_limits(stream)) if stream else sentence


def _limits(stream: Stream) -> dict[str, object]:
    return {
        "idle": humanize.length(stream.idle.total_seconds()),
        "cap": humanize.length(stream.cap.total_seconds()),
        "max_batch": stream.max_batch,
    }


def state_of(bucket: Bucket, now: datetime) -> str:
    """One word for a warehouse."""
    if bucket.held:
        return "held"
    if not bucket.open_count:
        return "empty"
    return "due" if bucket.due_at is not None and bucket.due_at <= now else "waiting"


def why(bucket: Bucket, now: datetime) -> tuple[str, str]:
    """Whether it is due, by the flusher's own rules: the answer, and what it follows from."""
    stream = streams().get(bucket.stream)
    if stream is None:
        return "Its stream is not configured.", "Nothing is read or flushed for it."
    if bucket.held:
        return "Held.", "Nothing is cut until somebody releases it. Orders go on arriving."
    if not bucket.open_count:
        return "Nothing waits here.", "The next order starts its clock."
    pressed = counters.totals(stream.name).get("open", 0) >= settings.BUFFER_HIGH_WATER
    caught_up = caught_up_of(stream)
    decision = decide(bucket, now, caught_up, stream.max_batch, pressed)
    if decision.reason:
        return "Due now.", RULES[decision.reason].format(**_limits(stream))
    read_at = caught_up.get(bucket.source_partition) if bucket.source_partition is not None else None
    return "Not due yet.", " ".join(_outlook(bucket, stream, read_at, now))


def _outlook(bucket: Bucket, stream: Stream, read_at: datetime | None, now: datetime) -> list[str]:
    limits = _limits(stream)
    partition = f"{topic_name(stream.topic)}/{bucket.source_partition}"
    sentences = []
    if read_at is None or now - read_at > STALE:
        state = (
            f"was last read to its end at {humanize.clock_in_zone(read_at, now)}"
            if read_at
            else "is stopped or was never read"
        )
        sentences.append(f"Partition {partition} {state}, so silence does not count.")
    elif bucket.idle_at:
        sentences.append(
            f"It is cut at {humanize.clock_in_zone(bucket.idle_at, now)} if no order comes ({limits['idle']}),"
        )
    if bucket.cap_at:
        start = "at" if read_at is not None and now - read_at <= STALE else "It is cut at"
        sentences.append(f"{start} {humanize.clock_in_zone(bucket.cap_at, now)} in any case ({limits['cap']}).")
    return sentences


def why_not_flush(bucket: Bucket) -> str:
    if bucket.held:
        return f"{bucket.location_id} is held: release it first."
    if not bucket.open_count:
        return f"Nothing waits at {bucket.location_id}."
    return f"A batch of {bucket.location_id} was asked for already."


def why_not_withdraw(event: BufferedEvent) -> str:
    if event.status == BufferedEvent.Status.CLAIMED:
        return f"Order {event.order_id} was put into a batch {humanize.ago(event.updated_at, timezone.now())}."
    if event.status == BufferedEvent.Status.SENT and (sent_at := _sent_at(event)):
        return f"Order {event.order_id} was sent {humanize.ago(sent_at, timezone.now())}."
    return f"Order {event.order_id} is {event.state} already."


def _sent_at(event: BufferedEvent) -> datetime | None:
    """When its batch was, as long as that is kept."""
    return Batch.objects.sent().filter(pk=event.batch_id).values_list("sent_at", flat=True).first()


def source_of(event: BufferedEvent) -> str:
    """`topic/partition/offset` of the message that is stored."""
    stream = streams().get(event.stream)
    topic = topic_name(stream.topic) if stream else event.stream
    return f"{topic}/{event.source_partition}/{event.source_offset}"


def months_kept() -> list[int]:
    """Partition keys of the months that are kept, newest first."""
    first, last = retained_months(timezone.now())
    months = []
    while last >= first:
        months.append(last)
        last -= 1 if last % 100 > 1 else 89
    return months
