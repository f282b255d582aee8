"""The two rows of a promise: its key and its message, in as few statements as the database needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import Model

from config.upsert import uuid_text
from outbox.models import IdempotencyKey, OutboxMessage

SCOPE = "publish"
KEY = ("scope", "key", "payload_hash", "message_id", "answer", "token", "created_at")
MESSAGE = (
    "id", "channel", "event_type", "aggregate", "payload", "correlation_id", "traceparent", "state", "attempts",
    "available_at", "expires_at", "times_uncertain", "times_revived", "error_class", "error", "receipt",
    "created_at",
)  # fmt: skip


def write(key: str, payload_hash: str, message: Mapping[str, Any]) -> bool:
    """Insert key and message (`MESSAGE` by name), or neither when the key is known; True when they are new.

    A no-op upsert, never a caught error: another transaction with the same key is waited for. The message goes
    in only behind a key that names it. PostgreSQL takes both as one statement: orders are written more often
    than anything else, and each round trip is a tenth of the outbox's share of them.
    """
    row = {**message, "id": adapted(message["id"])}
    times = {name: adapted(value) for name, value in row.items() if isinstance(value, datetime)}
    row |= times
    keyed = [SCOPE, key, payload_hash, row["id"], "", 0, row["created_at"]]
    values = [row[name] for name in MESSAGE]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_both(), [*keyed, *values])
        else:
            cursor.execute(_key(), keyed)
            cursor.execute(_message(), [*values, SCOPE, key, row["id"]])
        return bool(cursor.rowcount)


def adapted(value: uuid.UUID | datetime) -> Any:
    """As the column of this database takes it."""
    if isinstance(value, uuid.UUID):
        return value if connection.vendor == "postgresql" else uuid_text(value)
    return connection.ops.adapt_datetimefield_value(value)


@cache
def _both() -> str:
    message = f"{_insert(OutboxMessage, MESSAGE)} SELECT {_marks(MESSAGE)} FROM fresh"  # noqa: S608 (names of ours)
    return f"WITH fresh AS ({_key()} RETURNING 1) {message}"


@cache
def _key() -> str:
    known = (
        "ON DUPLICATE KEY UPDATE token = token"
        if connection.vendor == "mysql"
        else "ON CONFLICT (scope, key) DO NOTHING"
    )
    return f"{_insert(IdempotencyKey, KEY)} VALUES ({_marks(KEY)}) {known}"


@cache
def _message() -> str:
    quote = connection.ops.quote_name
    ours = " AND ".join(f"{quote(name)} = %s" for name in ("scope", "key", "message_id"))
    keys = quote(IdempotencyKey._meta.db_table)
    return f"{_insert(OutboxMessage, MESSAGE)} SELECT {_marks(MESSAGE)} FROM {keys} WHERE {ours}"  # noqa: S608


def _insert(model: type[Model], columns: Sequence[str]) -> str:
    quote = connection.ops.quote_name
    return f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(map(quote, columns))})"


def _marks(columns: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(columns))
