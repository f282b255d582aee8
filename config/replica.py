"""The read replica of REPLICA_URL: lists of what happened and gauges are read there, never what somebody decides by.

Nothing is routed by itself: code says `reading()`, or the primary answers. A claim, a lever, a right and the answer to a
write come from the primary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from math import inf
from threading import Lock
from typing import NamedTuple, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, DataError, InterfaceError, connections, models
from django.http import HttpRequest, HttpResponse

from config.database.clock import database_now
from config.processes.alive import is_of_ours, newest_report
from config.telemetry.logs import log
from config.telemetry.redaction import error_text, on_one_line

Answer = TypeVar("Answer")

REPLICA = "replica"
APPS = {"outbox", "buffer", "throttler", "notifications"}  # rights and sessions are always read from the primary
EACH = 2.0  # seconds after which the lag is measured again
HOLDS = 2 * EACH  # seconds for which a measured lag holds where the next one is long in coming
REPORTED = 30  # seconds: some worker reports each ten; without a report nothing tells the lag
WROTE = "spillway_wrote"  # the cookie of somebody who has just changed something

_reading: ContextVar[bool] = ContextVar("reading", default=False)


# -- Where a query goes --------------------------------------------------------------------------------------
class Router:
    """The primary, but for reads inside `reading()`; also where a row came from the replica."""

    def db_for_read(self, model: type[models.Model], **hints: object) -> str:
        return REPLICA if _reading.get() and model._meta.app_label in APPS else DEFAULT_DB_ALIAS

    def db_for_write(self, model: type[models.Model], **hints: object) -> str:
        return DEFAULT_DB_ALIAS  # SELECT … FOR UPDATE asks here, too

    def allow_relation(self, one: models.Model, other: models.Model, **hints: object) -> bool:
        return True

    def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
        return db != REPLICA


@contextmanager
def reading() -> Iterator[None]:
    """Inside, reads of the flows' tables go to the replica."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


def is_read() -> bool:
    """Whether this is inside `reading()`."""
    return _reading.get()


# -- How far it is behind ------------------------------------------------------------------------------------
class Measured(NamedTuple):
    """What was found out last."""

    at: float = -inf
    seconds: float | None = None
    trouble: str = ""  # why it cannot be told


class Lag:
    """Seconds by which the replica is behind, by the newest report of a worker in both; None: it cannot be told.

    A replica that has that report may lack what came after it, for at most `REPORTED` seconds: so long whoever writes reads
    the primary. The idea is that of pt-heartbeat: a row that somebody writes all the time tells more than what a server believes of
    its own replication, asks for no right, and is the same on every database.

    A replica may fall silent instead of failing. Then one thread waits for it, until its session's limits
    (config/environment/databases.py); all others go by what is known, which is soon too old.
    """

    def __init__(self) -> None:
        self._measuring = Lock()  # nobody waits for it
        self._last = Measured()

    def seconds(self) -> float | None:
        """Measured now, or within the last two seconds; while another thread measures, within the last four."""
        if time.monotonic() - self._last.at >= EACH and self._measuring.acquire(blocking=False):
            try:
                self._measure()
            finally:
                self._measuring.release()
        last = self._last
        return last.seconds if time.monotonic() - last.at < HOLDS else None

    def failed(self, error: Exception) -> None:
        """It did not answer: leave it alone for a while."""
        connections[REPLICA].close()  # says goodbye, and waits for no answer
        if not self._last.trouble:
            log.warning("replica_unavailable", error=str(error).strip()[:300])
        self._found(None, f"it does not answer ({on_one_line(error_text(error))[:300]})")

    def in_words(self) -> str:
        """`3 s behind by the newest report of a worker`, or why that cannot be told."""
        seconds = self.seconds()
        if seconds == inf:
            return "it has no report of a worker, which the primary has"
        if seconds is None:
            return self._last.trouble or "it has not answered for some seconds"
        return f"{seconds:.0f} s behind by the newest report of a worker"

    def _measure(self) -> None:
        now = database_now()
        ours = newest_report(DEFAULT_DB_ALIAS)
        try:
            theirs = newest_report(REPLICA)
        except (DatabaseError, InterfaceError) as error:
            self.failed(error)
            return
        behind = seconds_behind(now, ours and ours.at, theirs and theirs.at)
        if behind is None:
            self._found(None, "no worker reports, so nothing tells how far it is behind")
        # Of one that is far behind, the primary may have swept what it reports.
        elif theirs and behind <= settings.REPLICA_MAX_LAG_SECONDS and not is_of_ours(theirs):
            self._found(
                None, "it is no copy of the database of DATABASE_URL: a worker reports there that is unknown here"
            )
        else:
            self._found(behind, "")

    def _found(self, seconds: float | None, trouble: str) -> None:
        self._last = Measured(time.monotonic(), seconds, trouble)


def seconds_behind(now: datetime, ours: datetime | None, theirs: datetime | None) -> float | None:
    """By reports read from the primary first: 0 where the replica has the newest, else the age of what it has."""
    if ours is None or now - ours > timedelta(seconds=REPORTED):
        return None
    if theirs is None:
        return inf
    return 0.0 if theirs >= ours else (now - theirs).total_seconds()


lag = Lag()


def configured() -> bool:
    return REPLICA in connections.settings


def usable() -> bool:
    """Whether it is there, and no further behind than REPLICA_MAX_LAG_SECONDS."""
    seconds = lag.seconds() if configured() else None
    return seconds is not None and seconds <= settings.REPLICA_MAX_LAG_SECONDS


def prefer(work: Callable[[], Answer]) -> Answer:
    """What `work` reads, from the replica where it is usable; from the primary where it is not, or fails meanwhile.

    `work` only reads, and may be done twice: a long query on a standby is cancelled when it is in the way of what arrives.
    """
    if not usable():
        return work()
    try:
        with reading():
            return work()
    except DataError:  # the question is wrong, wherever it is asked
        raise
    except (DatabaseError, InterfaceError) as error:
        lag.failed(error)
        return work()


# -- Who has just written ------------------------------------------------------------------------------------
def remember_write(request: HttpRequest, response: HttpResponse) -> None:
    """Until the replica has it for certain, or is not read, whoever sent this request reads from the primary."""
    if configured() and request.method not in ("GET", "HEAD", "OPTIONS"):
        seconds = max(settings.REPLICA_MAX_LAG_SECONDS, REPORTED) + int(EACH) + 1
        secure = settings.SESSION_COOKIE_SECURE
        response.set_cookie(WROTE, "1", max_age=seconds, httponly=True, samesite="Lax", secure=secure)


def for_reader(request: HttpRequest, may_lag: bool, work: Callable[[], Answer]) -> Answer:
    """`prefer`, where the answer may be some seconds old and its reader has changed nothing meanwhile."""
    return prefer(work) if may_lag and WROTE not in request.COOKIES else work()
