"""One consistent snapshot of the database for several queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection, transaction

# Seconds that a snapshot may wait for another store which is asked about its rows: it only reads, nobody waits for it.
PATIENCE = 600


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
        _be_patient()
        yield


def _repeatable_read() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _be_patient() -> None:
    """Until the transaction ends; SQLite, and whoever has set no limit, wait for ever."""
    if connection.vendor == "sqlite" or not settings.DATABASE_IDLE_TRANSACTION_SECONDS:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{PATIENCE}s'")
        else:
            cursor.execute(f"SET SESSION wait_timeout = {PATIENCE}")
