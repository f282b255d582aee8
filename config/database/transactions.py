"""Transactions: what an error asks for and how long to wait before they run again, commits that do not wait, one snapshot."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
    models,
    transaction,
)

from config.telemetry import metrics
from config.telemetry.logs import log


# -- How long to wait ----------------------------------------------------------------------------------------
def full_jitter(attempt: int, *, base: float, cap: float, fraction: float | None = None) -> float:
    """Seconds before attempt `attempt` (1 is the first retry): uniform in 0 … min(cap, base · 2^(attempt-1)).

    Full jitter is the variant with the fewest collisions in AWS's study of exponential backoff.
    `fraction` (0 … 1) replaces the random draw in tests.
    """
    ceiling = min(cap, base * 2 ** min(max(attempt - 1, 0), 62))
    return ceiling * (random.random() if fraction is None else fraction)  # noqa: S311 (no secret)


# -- What an error asks for ----------------------------------------------------------------------------------
# 1467: MariaDB's word for a deadlock in which the lock of an AUTO_INCREMENT column has a part.
RERUN = {"40001", "40P01", "55P03", 1213, 1205, 1467, "locked", "stale"}
NO_PARTITION = {1526}
# A column that a prepared statement returns has another type since: the next session plans anew.
STALE_PLAN = {"0A000"}
# The server has ended the session: nothing came for too long inside a transaction, or it lasted too long.
SESSION_ENDED = {"25P03", "25P04"}
# A server that only reads, as one does after a failover: the next session may find the one that writes.
READ_ONLY = {"25006"}
# A table or a column does not exist.
UNMIGRATED = {"42P01", "42703", 1146, 1054}
DATA = {1366, 1406, 1264, 3140, 1292, 4025, 3819, 1300, 1048, 1690}
# A statement or a row that is larger than the server takes: max_allowed_packet (1153; 2020 is the client's own), a
# function's result (1301), a row of a page (1118), PostgreSQL's limits (an entry of an index, a row).
TOO_LARGE = {1153, 2020, 1301, 1118, "54000", "54001", "54011", "54023"}


class Remedy(Enum):
    """What to do about a failed transaction."""

    RERUN = "rerun"  # deadlock, lock timeout, serialisation failure, stale row: all of it again, from BEGIN
    WAIT = "wait"  # the server is gone, refuses, or is not in shape: retry with backoff, on a new session
    PARTITION = "partition"  # rows for a partition that does not exist: make it, then again
    DATA = "data"  # some row cannot be stored: bisect until it is alone
    BUG = "bug"  # anything else


class Stale(Exception):
    """A row has changed since it was read: nothing of this transaction may stay, and another try reads it again."""

    sqlstate = "stale"  # code_of finds it here


def code_of(error: BaseException) -> str | int | None:
    """SQLSTATE (PostgreSQL), errno (MySQL, MariaDB), "locked" (SQLite) or "stale" behind what ended a transaction."""
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None)
    if state:
        return str(state)
    if cause.args and isinstance(cause.args[0], int):
        return cause.args[0]
    text = str(cause)
    return "locked" if "locked" in text or "busy" in text else None


def _constraint(error: BaseException) -> str | None:
    """The check that a row violates; PostgreSQL names none when it has no partition for the row, in any language."""
    return getattr(getattr(error.__cause__ or error, "diag", None), "constraint_name", None)


def remedy_for(error: BaseException) -> Remedy:
    """Classify an exception that ended a transaction."""
    code = code_of(error)
    if code in RERUN:
        return Remedy.RERUN
    if code in NO_PARTITION or (code == "23514" and not _constraint(error)):
        return Remedy.PARTITION
    if code in DATA | TOO_LARGE or isinstance(error, DataError | IntegrityError | ValueError | OverflowError):
        return Remedy.DATA
    if code in STALE_PLAN | SESSION_ENDED | READ_ONLY or isinstance(
        error, OperationalError | InterfaceError | ProgrammingError
    ):
        return Remedy.WAIT
    if code is None and isinstance(error, InternalError):
        return Remedy.WAIT  # not the server's word: a pooler has ended the session with two answers to one statement
    return Remedy.BUG


def needs_migrate(error: BaseException) -> bool:
    """Whether a table or a column is missing: `migrate` has not run, or not to its end."""
    return code_of(error) in UNMIGRATED or str(error).startswith(("no such table", "no such column"))


def is_duplicate(error: BaseException) -> bool:
    """A unique key was hit, and nothing else (a missing partition is an IntegrityError on PostgreSQL, too)."""
    code = code_of(error)
    return code in ("23505", 1062) or "UNIQUE constraint failed" in str(error)


# -- Whether the server writes -------------------------------------------------------------------------------
READ_ONLY_SQL = {"postgresql": "SHOW transaction_read_only", "mysql": "SELECT @@GLOBAL.read_only"}
ONLY_READS = "the server only reads, as a standby does that is not promoted"


def only_reads() -> bool:
    """Whether the server takes no write, as a standby before it is promoted."""
    with connection.cursor() as cursor:
        cursor.execute(READ_ONLY_SQL.get(connection.vendor, "SELECT 0"))
        return str(cursor.fetchone()[0]).lower() not in ("off", "0")


# -- Wait, and run again -------------------------------------------------------------------------------------
NOWAIT = {1205, 3572}  # MariaDB, MySQL
LONGEST_WAIT = 5.0  # seconds


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


def drop_lost_sessions() -> None:
    """Give up this thread's sessions that the server has ended, so that the next statement opens others.

    A session inside a transaction stays: its next statement fails, which is for whoever began it to handle.
    `close_old_connections` would close even one that works.
    """
    for session in connections.all(initialized_only=True):
        if not session.in_atomic_block:
            session.close_if_unusable_or_obsolete()


def wait_for_rerun(
    worker: str,
    error: BaseException,
    remedy: Remedy,
    failures: int,
    sleep: Callable[[float], object] = time.sleep,
    longest: float = LONGEST_WAIT,
) -> None:
    """Count a failed transaction, and wait until it is worth another try; on a new session if the server is away."""
    metrics.RERUN.labels(worker, str(code_of(error) or type(error).__name__)).inc()
    if remedy is Remedy.RERUN:
        sleep(full_jitter(failures, base=0.005, cap=0.5))
        return
    if remedy is Remedy.WAIT:
        connection.close()
        log.warning("database_unavailable", worker=worker, attempt=failures, error=str(error).strip())
    sleep(0.2 + full_jitter(failures, base=0.2, cap=longest))


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
