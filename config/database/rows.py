"""Rows of a query without Django's converters, for hot loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet


def fast_rows(rows: QuerySet[Any, Any]) -> Iterable[tuple[Any, ...]]:
    """The rows of a `values_list()`."""
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return rows
    return fetch(connection, *rows.query.sql_with_params())


def fetch(connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a statement on PostgreSQL, with plain columns.

    Django reads each time with a loader written in Python: 5 µs each, several in a row. Here psycopg's own
    loader reads them; nothing else there needs Django's converters.
    """
    from psycopg import adapters
    from psycopg.pq import Format

    with connection.cursor() as cursor:
        known = adapters.types["timestamptz"].oid
        loader = adapters.get_loader(known, Format.TEXT)
        if loader is not None:
            cursor.cursor.adapters.register_loader(known, loader)  # of this cursor alone
        cursor.execute(sql, params)
        return list(cursor.fetchall())
