"""Writes a message in the transaction of the change that it is about, and settles one that its provider proves later."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import AutoField, Model

from config.database.clock import database_now
from config.database.dialects.base import Dialect, Insertion
from config.database.dialects.vendors import dialect_for
from config.fields import uuid7, uuid7_after
from config.flows import order_in
from config.payload import digest
from config.telemetry.logs import log_committed
from config.telemetry.tracing import trace_id_of, traceparent
from outbox.bookkeeping import counters
from outbox.channels.handlers import handler_of, ids_of
from outbox.messages import notify
from outbox.messages.models import FLOW, DeliveryAttempt, IdempotencyKey, OutboxMessage

# -- Inserting a message -------------------------------------------------------------------------------------
# Its key, the message and the row that names it, in as few statements as the database needs.
SCOPE = "publish"
KEYLESS = "keyless"  # counts messages that are promised without a key
ROW = "row_"  # before the names of the columns of the row that names the message


def _new(model: type[Model], given: str, **other: str) -> Insertion:
    """A row with values that are given, and with the model's defaults as literals: each parameter has its price."""
    fixed = {field.attname: field.get_default() for field in model._meta.local_fields if field.has_default()}
    values = {name: f"'{value}'" if isinstance(value, str) else f"{value}" for name, value in fixed.items()}
    values |= {name: f"%({name})s" for name in given.split()}
    return Insertion(model._meta.db_table, {**values, **other})


KEY = _new(IdempotencyKey, "key payload_hash created_at", message_id="%(id)s", scope=f"'{SCOPE}'")
MESSAGE = _new(
    OutboxMessage,
    "id channel event_type aggregate payload correlation_id traceparent created_at expires_at",
    available_at="%(created_at)s",
)


def write(values: Mapping[str, object], row: Model | None = None) -> bool:
    """Insert key and message and, in the same round trip, `row`; whether the key was new. Else nothing was written.

    `values` are the parameters of `KEY` and `MESSAGE`. A known key is an upsert that changes nothing, never a caught
    error: another transaction with the same key is waited for.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    dialect = dialect_for(connection)
    if row is not None:
        values = {**values, **_values_of(row, connection)}
    with dialect.cursor(connection) as cursor:
        statements = _statements(dialect, row and type(row))
        dialect.execute_all(cursor, statements, dialect.adapted(connection, values))
        return bool(cursor.rowcount)


@cache
def _statements(dialect: Dialect, model: type[Model] | None) -> list[str]:
    """The message goes last, because the last row count tells whether anything was written."""
    named = [] if model is None else [Insertion(model._meta.db_table, _parameters(model))]
    return dialect.insert_behind_key(KEY, ["scope", "key"], "token", [*named, MESSAGE])


def _parameters(model: type[Model]) -> dict[str, str]:
    return {field.column: f"%({ROW}{field.column})s" for field in _fields(model)}


def _values_of(row: Model, connection: BaseDatabaseWrapper) -> dict[str, object]:
    return {
        ROW + field.column: field.get_db_prep_save(field.pre_save(row, add=True), connection)
        for field in _fields(type(row))
    }


@cache
def _fields(model: type[Model]) -> list[Any]:
    """What is written of a row; an automatic id is the database's. ValueError for a model that cannot name a message."""
    fields = [field for field in model._meta.local_concrete_fields if not isinstance(field, AutoField)]
    if "message_id" not in [field.attname for field in fields]:
        raise ValueError(f"row: {model.__name__} has no field message_id")
    if model._meta.parents:
        raise ValueError(f"row: {model.__name__} is stored in several tables")
    return fields


# -- Publishing: a message is inserted in the transaction of the change it is about --------------------------
NONE_BEFORE = uuid.UUID(int=0)  # `after` of an aggregate's first message


class IdempotencyConflict(Exception):
    """The key was used for another message."""


def publish(
    event_type: str,
    aggregate: str,
    payload: object,
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
    messages of one aggregate leave in the order of their ids, also between hosts whose clocks differ. `after` is
    the aggregate's previous message where the caller knows it, or NONE_BEFORE; without it, it is looked for.

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
    message_id = uuid7_after(after or _newest_of(aggregate))
    if row is not None:
        row.message_id = message_id  # type: ignore[attr-defined]
    times = {"created_at": now, "expires_at": expiry_of(now)}
    if not write({"id": message_id, **key, **content, **trace, **times}, row):
        return _known(**key, may_repeat=row is None)
    transaction.on_commit(notify.notify_relays, robust=True)
    _log(PublishedMessage(message_id, channel, aggregate, event_type, **trace))
    return message_id


def _newest_of(aggregate: str) -> uuid.UUID | None:
    """The aggregate's newest message, if a host whose clock is ahead has made it."""
    return OutboxMessage.objects.newest_of([aggregate], uuid7()).get(aggregate)


class PublishedMessage(NamedTuple):
    """What a line of the log says of a message."""

    id: uuid.UUID
    channel: str
    aggregate: str
    event_type: str
    correlation_id: str
    traceparent: str


GATHERED: ContextVar[list[PublishedMessage] | None] = ContextVar("messages that become one line", default=None)


@contextmanager
def published_together() -> Iterator[None]:
    """What is published inside, all in one transaction, is one line of the log."""
    messages: list[PublishedMessage] = []
    token = GATHERED.set(messages)
    try:
        yield
    finally:
        GATHERED.reset(token)
    if messages:
        log_committed("messages_published", messages=len(messages), ids=ids_of(messages))


def _log(message: PublishedMessage) -> None:
    if (messages := GATHERED.get()) is not None:
        messages.append(message)
        return
    log_committed(
        "message_published", channel=message.channel, message_id=str(message.id), aggregate=message.aggregate,
        order_id=order_in(message.aggregate), event_type=message.event_type, correlation_id=message.correlation_id,
        trace_id=trace_id_of(message.traceparent),
    )  # fmt: skip


def content_hash(channel: str, event_type: str, aggregate: str, payload: str) -> str:
    """What a key stands for; `verify` compares the message with it."""
    return digest("\x1f".join((channel, event_type, aggregate, payload)).encode())


def expiry_of(now: datetime) -> datetime:
    """When a message expires that is written now."""
    return now + timedelta(seconds=settings.OUTBOX_EXPIRES_SECONDS)


def encode(channel: str, event_type: str, aggregate: str, payload: object, key: str) -> str:
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


# -- Confirming: the other side proved later that it accepted ----------------------------------------------------
PROVABLE = ("uncertain", "processing", "pending")
# What is written of a message that the other side accepted.
ACCEPTED = {"state": OutboxMessage.State.SENT.value, "lease_until": None, "error_class": "", "error": ""}


def confirm(receipts: Mapping[uuid.UUID, str], now: datetime) -> int:
    """Mark messages as sent, because the other side proved that it accepted them; a planned retry is cancelled.

    `receipts` are the other side's names by message. Called in any transaction or none. A worker that is sending one again
    at this moment finds it settled. Returns how many were settled: not those already sent, in a final state, or never tried.
    """
    confirmed: dict[str, list[OutboxMessage]] = {}
    provable = OutboxMessage.objects.filter(state__in=PROVABLE, attempts__gt=0)
    with transaction.atomic():
        for message in provable.among(receipts).order_by("id").defer("payload"):
            receipt = receipts[message.id][:300]
            if provable.filter(pk=message.id).update(sent_at=now, receipt=receipt, **ACCEPTED):
                DeliveryAttempt.objects.of([message.id]).close(now, "sent", receipt=receipt)
                confirmed.setdefault(message.channel, []).append(message)
        counters.add({(FLOW, channel, "confirmed"): len(messages) for channel, messages in confirmed.items()}, now)
        for channel, messages in confirmed.items():
            log_committed("messages_confirmed", channel=channel, messages=len(messages), ids=ids_of(messages))
    return sum(map(len, confirmed.values()))
