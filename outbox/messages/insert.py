"""Inserting a message: its key, the message and the row that names it, in as few statements as the database needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import AutoField, Model

from config.database.dialects import Dialect, dialect_for
from config.database.dialects.base import Insertion
from outbox.messages.models import IdempotencyKey, OutboxMessage

SCOPE = "publish"
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


def write(values: Mapping[str, Any], row: Model | None = None) -> bool:
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
