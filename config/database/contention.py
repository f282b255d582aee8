"""Ask whether another transaction is writing a row, and wait before a failed transaction is run again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from django.db import OperationalError, connection, connections, models

from config.backoff import full_jitter
from config.database.errors import Remedy, code_of
from config.telemetry import metrics
from config.telemetry.logs import log

NOWAIT = {1205, 3572}  # MariaDB, MySQL
LONGEST_WAIT = 5.0  # seconds


def written_elsewhere(name: str, rows: models.QuerySet) -> bool:
    """Whether another transaction has inserted or locked the one row that `rows` finds; an upsert would wait for it.

    `name` says the same in words, to lock a row that is not there yet. Inside a transaction, which this makes
    the owner of `name` if nobody was.
    """
    connection = connections[rows.db]
    if connection.vendor == "postgresql":
        # An uncommitted row is invisible, and nothing of it can be locked: the name is locked instead.
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

    A session in a transaction stays: whoever began that finds out, and `close_old_connections` would end a good one.
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
