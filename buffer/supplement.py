"""Late events: what was already sent is corrected by a supplement, the signed difference per SKU."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from buffer.events.buckets import arrive
from buffer.events.models import NO_BATCH, Batch, Bucket, BufferedEvent
from buffer.events.positions import Position
from buffer.events.queries import EventQuerySet
from buffer.flush.freeze import content_hash, headers_of, iso
from buffer.streams import Stream
from config.admin.humanize import plural
from config.as_json import as_json
from config.digest import digest
from config.flows import Forecast, Refusal
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of

Status = BufferedEvent.Status
GONE = "the order is no longer in the buffer: its month was dropped"
NOT_SENT_YET = "its batch is cut but not sent yet: try again when it is"
SOURCE = ("topic_id", "source_partition", "source_offset", "source_timestamp")


def send_late(stream: Stream, letter: DeadLetter, now: datetime) -> str:
    """Apply a late event inside the caller's transaction; returns what was done, in words.

    A sent order gets a supplement, a discarded one is opened again. A letter that is older than what was
    sent changes nothing.
    """
    at, payload = _said(letter)
    event = _events(stream, payload).select_for_update().first()
    if event is None:
        raise Refusal(GONE)
    if event.status == Status.CLAIMED:
        raise Refusal(NOT_SENT_YET)
    source = Position(event.topic_id, event.source_partition, event.source_offset, event.source_timestamp)
    note = "nothing to do: a newer version of the order has been taken"
    if at.newer_than(source):
        note = _correct(stream, event, payload, at, now)
    # Counters are shared by all workers: their locks come last, as in ingestion, or the two deadlock.
    scope = str(at.partition)
    counters.add({(stream.name, scope, "replayed"): 1, (stream.name, scope, "superseded"): 1}, now)
    return note


def foresee(stream: Stream, letter: DeadLetter) -> Forecast:
    """What `send_late` would do now: the same questions in the same order, with nothing locked or written."""
    at, payload = _said(letter)
    event = _events(stream, payload).first()
    if event is None:
        raise Refusal(GONE)
    if event.status == Status.CLAIMED:
        raise Refusal(NOT_SENT_YET)
    if not at.newer_than(Position(event.topic_id, event.source_partition, event.source_offset, event.source_timestamp)):
        return Forecast("idle", "Changes nothing.", "A newer version of the order has been taken.")
    if event.status != Status.SENT:
        done = "Its message is replaced." if event.status == Status.PENDING else "It was discarded and waits again."
        return Forecast("ok", "The order goes into the next batch.", done)
    items = stream.difference(payload, event.payload)
    if not items:
        return Forecast("idle", "Sends nothing.", "The quantities are those that were sent.")
    return Forecast(
        "ok", "Sends a supplement.", f"The difference to what was sent: {plural(len(items), 'SKU', 'SKUs')}."
    )


def _correct(stream: Stream, event: BufferedEvent, payload: str, at: Position, now: datetime) -> str:
    if event.status != Status.SENT:
        return _reopen(stream, event, payload, at, now)
    items = stream.difference(payload, event.payload)
    _replace(event, payload, at, now)
    if not items:
        return "nothing to send: the quantities are those that were sent"
    batch = _supplement(stream, event, at, items, now)
    return f"sent as supplement {batch.pk} of batch {event.batch_id}"


def _said(letter: DeadLetter) -> tuple[Position, str]:
    """Where a late record stands, and what it says."""
    record = record_of(letter)
    at = Position(letter.topic_id, record.partition, record.offset, record.timestamp)
    return at, (record.value or b"").decode()


def _events(stream: Stream, payload: str) -> EventQuerySet:
    """The stored order that a message is about."""
    message = stream.gate.decoder.decode(payload)
    rows = BufferedEvent.objects.of_stream(stream.name).in_months([stream.month_of(message)])
    return rows.filter(order_id=message.order_id, location_id=message.location_id)


def _replace(event: BufferedEvent, payload: str, at: Position, now: datetime, **changes: Any) -> None:
    """Store the letter's message in the row: what was last sent, or is to be sent."""
    row = BufferedEvent.objects.filter(pk=event.pk, partition_key=event.partition_key, status=event.status)
    changes.update(zip(SOURCE, at, strict=True), payload=payload, payload_hash=digest(payload.encode()))
    if not row.update(revision=event.revision + 1, updated_at=now, **changes):
        raise Refusal("the order has just changed: try again")


def _reopen(stream: Stream, event: BufferedEvent, payload: str, at: Position, now: datetime) -> str:
    if event.status == Status.PENDING:
        _replace(event, payload, at, now)
        return "the order is still open: its message was replaced"
    _replace(event, payload, at, now, status=Status.PENDING, batch_id=NO_BATCH)
    arrive(stream, {event.location_id: (1, event.source_partition)}, now)
    counters.add({(stream.name, str(at.partition), "open"): 1}, now)
    return "the order had been discarded and waits for a batch again"


def _supplement(
    stream: Stream, event: BufferedEvent, at: Position, items: list[dict[str, Any]], now: datetime
) -> Batch:
    sequence = Bucket.objects.of_stream(stream.name).filter(location_id=event.location_id).next_sequence()
    batch_id = uuid.uuid5(event.batch_id, f"{at.topic_id}/{at.partition}/{at.offset}")
    message = {
        "batch_id": str(batch_id),
        "location_id": event.location_id,
        "flushed_at": iso(now),
        "order_ids": [event.order_id],
        "items": items,
        "supplement_of": str(event.batch_id),
    }
    headers = headers_of(batch_id, [[at.partition, at.offset]], at.topic_id)
    place = {"stream": stream.name, "location_id": event.location_id, "sequence": sequence}
    month = {"partition_key": event.partition_key, "months": [event.partition_key]}
    origin = {"reason": "supplement", "supplement_of": event.batch_id, "event_count": 1, "claimed_at": now}
    payload = as_json(message)
    content = {"payload": payload, "headers": headers, "content_hash": content_hash(payload, headers)}
    return Batch.objects.create(batch_id=batch_id, **place, **month, **origin, **content)
