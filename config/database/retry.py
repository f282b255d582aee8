"""Retries of transactions: how long to wait, what an error asks for, and the wait before another try."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from enum import Enum

from django.db import (
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
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


def awaited(error: BaseException | None) -> str:
    """Why the schema registry is waited for, if it is: the error of a format, which is none of the database."""
    return str(error).strip() if getattr(error, "of_registry", False) else ""


# -- Wait, and run again -------------------------------------------------------------------------------------
LONGEST_WAIT = 5.0  # seconds


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
        if registry := awaited(error):
            log.warning("schema_registry_unavailable", worker=worker, attempt=failures, error=registry)
        else:
            log.warning("database_unavailable", worker=worker, attempt=failures, error=str(error).strip())
    sleep(0.2 + full_jitter(failures, base=0.2, cap=longest))
