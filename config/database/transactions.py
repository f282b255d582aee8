"""Transactions of a special kind: commits that do not wait for the disk, one snapshot for several queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction


# -- Commits that do not wait for the disk -------------------------------------------------------------------
def commit_lazily(using: str = DEFAULT_DB_ALIAS) -> None:
    """Do not wait for the disk when the transaction under way commits.

    A server that crashes within a second may lose the whole transaction, so this is only for work that is then
    done again. Only PostgreSQL decides this by transaction; elsewhere nothing changes.
    """
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit TO off")


# -- One snapshot for several queries ------------------------------------------------------------------------
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
