"""Publishing: a message is inserted in the transaction of the change it is about."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Model

from config.database.clock import database_now
from config.digest import digest
from config.telemetry.tracing import traceparent
from config.uuid7 import uuid7_after
from outbox.channels.handlers import handler_of
from outbox.messages import notify
from outbox.messages.insert import SCOPE, write
from outbox.messages.models import IdempotencyKey


class IdempotencyConflict(Exception):
    """The key was used for another message."""


def publish(
    event_type: str,
    aggregate: str,
    payload: Any,
    *,
    idempotency_key: str,
    channel: str = "email",
    row: Model | None = None,
    after: uuid.UUID | None = None,
    correlation_id: str = "",
    now: datetime | None = None,
) -> uuid.UUID:
    """Promise that `payload` (JSON-able) leaves through `channel`, if the transaction under way commits.

    Lock the row the message is about first (change it, with a guard): ids rise in the order of the calls, and
    messages of one aggregate leave in the order of their ids. `after`, the aggregate's previous message where
    the caller knows it, keeps that order between hosts whose clocks differ.

    `row`, an unsaved model instance with a field `message_id`, names the message and is inserted with it, in the
    same round trip, as `bulk_create` would: no signals, no `save`. `now` is the database's time if the caller
    has just read it.

    A known key changes nothing and returns the first message's id. Raises IdempotencyConflict when it was used
    for something else, or when there is a `row`, which would name a message that is not there; ValueError for a
    message that could never be delivered, RuntimeError outside a transaction.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("publish() outside a transaction: the message could outlive a change that failed")
    text, now = encode(channel, event_type, aggregate, payload, idempotency_key), now or database_now()
    content = {"channel": channel, "event_type": event_type, "aggregate": aggregate, "payload": text}
    key = {"key": idempotency_key, "payload_hash": content_hash(*content.values())}
    trace = {"correlation_id": correlation_id[:100], "traceparent": traceparent()}
    message_id = uuid7_after(after)
    if row is not None:
        row.message_id = message_id  # type: ignore[attr-defined]
    times = {"created_at": now, "expires_at": expiry_of(now)}
    if not write({"id": message_id, **key, **content, **trace, **times}, row):
        return _known(**key, may_repeat=row is None)
    transaction.on_commit(notify.notify_relays, robust=True)
    return message_id


def content_hash(channel: str, event_type: str, aggregate: str, payload: str) -> str:
    """What a key stands for; `verify` compares the message with it."""
    return digest("\x1f".join((channel, event_type, aggregate, payload)).encode())


def expiry_of(now: datetime) -> datetime:
    """When a message expires that is written now."""
    return now + timedelta(seconds=settings.OUTBOX_EXPIRES_SECONDS)


def encode(channel: str, event_type: str, aggregate: str, payload: Any, key: str) -> str:
    """The payload as it is stored and sent by every attempt; raises ValueError for what cannot be stored or sent."""
    texts = [("event_type", event_type, 100), ("aggregate", aggregate, 200), ("idempotency_key", key, 200)]
    for name, value, length in texts:
        if not 0 < len(value) <= length or "\x00" in value:
            raise ValueError(f"{name}: 1 to {length} characters without U+0000 are needed")
    handler_of(channel).check(payload)
    data = msgspec.json.encode(payload)
    if len(data) > settings.OUTBOX_MAX_BYTES:
        raise ValueError(f"payload: {len(data)} bytes, OUTBOX_MAX_BYTES allows {settings.OUTBOX_MAX_BYTES}")
    return data.decode()


def _known(key: str, payload_hash: str, may_repeat: bool) -> uuid.UUID:
    """The id of the message that the key was first used for."""
    first = IdempotencyKey.objects.get(scope=SCOPE, key=key)
    if not may_repeat or first.payload_hash != payload_hash or first.message_id is None:
        raise IdempotencyConflict(f"the key {key!r} was used for another message")
    return first.message_id
