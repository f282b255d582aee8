"""The rows of a promise: its key, its message and what names it, in as few statements as the database needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import AutoField, Model

from config.database.dialects import dialect_for
from config.database.upsert import uuid_text
from outbox.messages.models import IdempotencyKey, OutboxMessage

SCOPE = "publish"
ROW = "row_"  # before the names of the columns of the row that names the message
# MySQL and MariaDB count a new key as one row and a changed one as two, so that each statement goes on only where the one
# before it inserted: looking the key up instead cost as much as inserting the message.
WHERE_KNOWN = "ON DUPLICATE KEY UPDATE token = token + 1"
IF_INSERTED = "DUAL WHERE ROW_COUNT() = 1"
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


def write(values: Mapping[str, Any], row: Model | None = None) -> bool:
    """Insert key and message and, in the same round trip, `row`; whether the key was new. Else nothing was written.

    `values` are those that `KEY` and `MESSAGE` name. A no-op upsert, never a caught error: another transaction
    with the same key is waited for. The others go in only behind a key that names the message.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    with dialect_for(connection).cursor(connection) as cursor:
        if row is None:
            _insert(connection, cursor, values, None)
        else:
            _insert(connection, cursor, {**values, **_values_of(row, connection)}, type(row))
        return bool(cursor.rowcount)


def _values_of(row: Model, connection: BaseDatabaseWrapper) -> dict[str, Any]:
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


def _insert(
    connection: BaseDatabaseWrapper, cursor: Any, values: Mapping[str, Any], model: type[Model] | None
) -> None:
    """PostgreSQL takes all as one statement, planned once a session: orders are written more often than anything else."""
    if connection.vendor == "postgresql":
        cursor.execute(_at_once(model), values)
        return
    adapted = {name: _adapted(connection, value) for name, value in values.items()}
    statements = _one_by_one(connection.vendor, model)
    if connection.vendor == "mysql":
        cursor.execute("; ".join(statements), adapted)  # one way there and back
        for _ in statements[1:]:
            cursor.nextset()
    else:
        for statement in statements:
            cursor.execute(statement, adapted)


def _adapted(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """As the column of this database takes it."""
    if isinstance(value, uuid.UUID):
        return uuid_text(value)
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


@cache
def _at_once(model: type[Model] | None) -> str:
    parts = [f"fresh AS ({_key('postgresql')} RETURNING 1)"]
    if model is not None:
        parts.append(f"named AS ({_behind_key(model, _columns(model), 'fresh')})")
    return f"WITH {', '.join(parts)} {_behind_key(OutboxMessage, MESSAGE, 'fresh')}"


@cache
def _one_by_one(vendor: str, model: type[Model] | None) -> list[str]:
    """The message last: whether it was written is what the last of them tells."""
    source = IF_INSERTED if vendor == "mysql" else _this_key()
    named = [] if model is None else [_behind_key(model, _columns(model), source)]
    return [_key(vendor), *named, _behind_key(OutboxMessage, MESSAGE, source)]


def _this_key() -> str:
    quote = connections[DEFAULT_DB_ALIAS].ops.quote_name
    ours = " AND ".join(f"{quote(column)} = {KEY[column]}" for column in ("scope", "key", "message_id"))
    return f"{quote(IdempotencyKey._meta.db_table)} WHERE {ours}"


def _key(vendor: str) -> str:
    known = WHERE_KNOWN if vendor == "mysql" else "ON CONFLICT (scope, key) DO NOTHING"
    return f"{_into(IdempotencyKey, KEY)} VALUES ({', '.join(KEY.values())}) {known}"


def _behind_key(model: type[Model], columns: Mapping[str, str], source: str) -> str:
    return f"{_into(model, columns)} SELECT {', '.join(columns.values())} FROM {source}"  # noqa: S608 (names of ours)


def _columns(model: type[Model]) -> dict[str, str]:
    return {field.column: f"%({ROW}{field.column})s" for field in _fields(model)}


def _into(model: type[Model], columns: Mapping[str, str]) -> str:
    quote = connections[DEFAULT_DB_ALIAS].ops.quote_name
    return f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(map(quote, columns))})"
