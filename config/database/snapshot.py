"""One consistent snapshot of the database for several queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def consistent_snapshot() -> Iterator[None]:
    """Run the queries inside on one snapshot: under READ COMMITTED each would see its own, and counts would not add up."""
    if connection.in_atomic_block:
        yield  # the caller's transaction is the moment
        return
    if connection.vendor == "mysql":
        _repeatable_read()  # applies to the next transaction
    with transaction.atomic():
        if connection.vendor == "postgresql":
            _repeatable_read()  # applies to this one, before its first query
        yield


def _repeatable_read() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
