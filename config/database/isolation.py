"""What a transaction sees and waits for: a lock of somebody else, the disk, one snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, models, transaction

from config.database.retry import code_of

# -- Whose lock is in the way -------------------------------------------------------------------------------
NOWAIT = {1205, 3572}  # MariaDB, MySQL


def written_elsewhere(name: str, rows: models.QuerySet) -> bool:
    """Whether another transaction has inserted or locked the one row that `rows` finds; an upsert would wait for it.

    `name` names that row: PostgreSQL locks the name, because a row that is not committed cannot be locked. Inside a
    transaction, which then holds the lock if nobody else does.
    """
    connection = connections[rows.db]
    if connection.vendor == "postgresql":
        number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
            return not cursor.fetchone()[0]
    if connection.vendor == "sqlite":
        return False  # BEGIN IMMEDIATE has waited already
    try:
        list(rows.select_for_update(nowait=True).values_list("pk", flat=True)[:1])
    except OperationalError as error:
        if code_of(error) in NOWAIT:
            return True
        raise
    return False


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
