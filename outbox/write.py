"""The two rows of a promise: its key and its message, in as few statements as the database needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from config.dialects import dialect_for
from config.upsert import uuid_text
from outbox.models import IdempotencyKey, OutboxMessage

SCOPE = "publish"
# What every new message starts with; it stands in the statement, because each parameter has its price.
NEW: dict[str, str | int] = {
    "state": OutboxMessage.State.PENDING.value, "attempts": 0, "times_uncertain": 0, "times_revived": 0,
    "error_class": "", "error": "", "receipt": "",
}  # fmt: skip


def _given(*columns: str) -> dict[str, str]:
    return {column: f"%({column})s" for column in columns}


def _fixed(values: Mapping[str, str | int]) -> dict[str, str]:
    return {column: repr(value) for column, value in values.items()}  # plain words and numbers of ours


KEY = {
    **_given("key", "payload_hash", "created_at"), "message_id": "%(id)s",
    **_fixed({"scope": SCOPE, "answer": "", "token": 0}),
}  # fmt: skip
MESSAGE = {
    **_given("id", "channel", "event_type", "aggregate", "payload", "correlation_id", "traceparent", "created_at",
             "expires_at"),
    "available_at": "%(created_at)s", **_fixed(NEW),
}  # fmt: skip


class KnownKey(Exception):
    """Neither key nor message was written."""


@contextmanager
def writing(values: Mapping[str, Any]) -> Iterator[None]:
    """Insert key and message; on PostgreSQL in one round trip with what the block writes. KnownKey at its end.

    `values` are those that `KEY` and `MESSAGE` name. A no-op upsert, never a caught error: another transaction
    with the same key is waited for. The message goes in only behind a key that names it.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    dialect = dialect_for(connection)
    with dialect.cursor(connection) as cursor:
        with dialect.one_round_trip(connection):
            _insert_both(connection, cursor, values)
            yield
        if not cursor.rowcount:
            raise KnownKey


def _insert_both(connection: BaseDatabaseWrapper, cursor: Any, values: Mapping[str, Any]) -> None:
    """PostgreSQL takes both as one statement, planned once a session: orders are written more often than anything else."""
    if connection.vendor == "postgresql":
        cursor.execute(_both(), values)
        return
    adapted = {name: _adapted(connection, value) for name, value in values.items()}
    if connection.vendor == "mysql":
        cursor.execute(f"{_key('mysql')}; {_message()}", adapted)  # one way there and back
        cursor.nextset()
    else:
        cursor.execute(_key(connection.vendor), adapted)
        cursor.execute(_message(), adapted)


def _adapted(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """As the column of this database takes it."""
    if isinstance(value, uuid.UUID):
        return uuid_text(value)
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


@cache
def _both() -> str:
    message = f"{_insert(OutboxMessage, MESSAGE)} SELECT {', '.join(MESSAGE.values())} FROM fresh"  # noqa: S608 (names of ours)
    return f"WITH fresh AS ({_key('postgresql')} RETURNING 1) {message}"


@cache
def _key(vendor: str) -> str:
    known = (
        "ON DUPLICATE KEY UPDATE token = token"
        if vendor == "mysql"
        else "ON CONFLICT (scope, key) DO NOTHING"
    )
    return f"{_insert(IdempotencyKey, KEY)} VALUES ({', '.join(KEY.values())}) {known}"


@cache
def _message() -> str:
    quote = connections[DEFAULT_DB_ALIAS].ops.quote_name
    ours = " AND ".join(f"{quote(column)} = {KEY[column]}" for column in ("scope", "key", "message_id"))
    keys = quote(IdempotencyKey._meta.db_table)
    return f"{_insert(OutboxMessage, MESSAGE)} SELECT {', '.join(MESSAGE.values())} FROM {keys} WHERE {ours}"  # noqa: S608


def _insert(model: type[Model], columns: Mapping[str, str]) -> str:
    quote = connections[DEFAULT_DB_ALIAS].ops.quote_name
    return f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(map(quote, columns))})"
