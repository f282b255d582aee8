"""Reports every ten seconds that this process lives, and looks for those of its host that do not any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import uuid4

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, close_old_connections, connection

from config.database.clock import compared_clocks
from config.database.queries import delete_in_chunks
from config.database.retry import needs_migrate
from config.processes.alive import Identity, Report
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import log
from outbox.processes.models import LONGEST_HOLDS, RESTART, WorkerProcess

EACH = 10.0  # seconds between two reports
AGAIN = 1.0  # after one that failed: a database that is back finds nobody missing for long
OVERDUE = timedelta(seconds=EACH * 1.5)  # then the other processes of its host look for it
PATIENCE = 5.0  # seconds that the last report may take


class Heartbeat:
    """`settings.HEARTBEAT`: one row, one small UPDATE each ten seconds, on a thread and a connection of its own.

    What the row says is only ever true of its process: a frozen one that wakes up after another took its row gets a new one.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.run = uuid4()
        self.key: int | None = None  # of our row
        self.error = ""
        self.failing = False
        self._counted, self._counted_at = 0, time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, error: str) -> None:
        """Report that it ends, and why; a database that does not answer is not waited for."""
        self.error = error
        self._ending.set()
        self._thread.join(PATIENCE)

    @staticmethod
    def newest(alias: str) -> Report | None:
        """The last report of any process, as this database has it; of the end of an index."""
        rows = WorkerProcess.objects.using(alias).order_by("-seen_at").values_list("seen_at", "run")
        return next((Report(at, str(run)) for at, run in rows[:1]), None)

    @staticmethod
    def knows(run: str) -> bool:
        return WorkerProcess.objects.using(DEFAULT_DB_ALIAS).filter(run=run).exists()

    def _work(self) -> None:
        wait = 0.0
        while not self._ending.wait(wait):
            wait = EACH if self._try(self.report) else AGAIN
        self._try(self.leave)
        connection.close()

    def _try(self, act: Callable[[datetime], None]) -> bool:
        """Whether it could be written; a failure is logged once, until it succeeds again."""
        try:
            close_old_connections()
            now, ahead = compared_clocks()
            metrics.set_own(metrics.CLOCK_AHEAD, ahead)
            act(now)
        except (DatabaseError, InterfaceError) as error:
            if not self.failing and not needs_migrate(error):  # of which the command itself speaks, in one line
                log.warning("report_failed", command=self.identity.command, error=str(error).strip()[:300])
            self.failing = True
            connection.close()
            return False
        self.failing = False
        return True

    def report(self, now: datetime) -> None:
        """Say that we live and what we do; then look for those of our host that are overdue."""
        doing = self._doing(now)
        if not (self.key and WorkerProcess.objects.run_by(self.key, self.run).update(**doing)):
            self._enter(now, doing)
        look_around(now)

    def leave(self, now: datetime) -> None:
        """Say that we end. Who ended before the first report is only heard of if something was wrong."""
        if self.key is None and self.error:
            self._enter(now, self._doing(now))
        if self.key is not None:
            changes = {**self._doing(now), "rate": 0.0, "ended_at": now, "error": self.error[:500]}
            WorkerProcess.objects.run_by(self.key, self.run).update(**changes)

    def _doing(self, now: datetime) -> dict[str, object]:
        moved, at, round_at = activity.moved, time.monotonic(), activity.round_at
        rate = (moved - self._counted) / max(at - self._counted_at, 0.001)
        self._counted, self._counted_at = moved, at
        return {
            "seen_at": now, "moved": moved, "rate": round(rate, 3), "missed_at": None, "unit": activity.unit(),
            "error": activity.awaited()[:500],
            "holds": in_words(activity.held())[:LONGEST_HOLDS],
            "round_at": None if round_at is None else now - timedelta(seconds=at - round_at),
        }  # fmt: skip

    def _enter(self, now: datetime, doing: dict[str, object]) -> None:
        """Take over the row of an earlier process of this worker, or make one."""
        self.run = uuid4()
        known = {**vars(self.identity), "run": self.run, "since": now, "ended_at": None, "error": "", **doing}
        known |= {"arguments": self.identity.arguments[:300], "host": self.identity.host[:255]}
        for row in WorkerProcess.objects.of_worker(self.identity).order_by("seen_at"):
            if not row.may_be_replaced(now):
                continue
            restarted = now - (row.ended_at or now) < RESTART
            more = {"starts": row.starts + 1, "kept_since": row.kept_since if restarted else now}
            if WorkerProcess.objects.run_by(row.pk, row.run).filter(seen_at=row.seen_at).update(**known, **more):
                self.key = row.pk
                return
        self.key = WorkerProcess.objects.create(**known, kept_since=now).pk


def look_around(now: datetime) -> None:
    """Write down which processes of this host are gone: only here can somebody see that."""
    for row in WorkerProcess.objects.overdue_here(now, OVERDUE):
        here = WorkerProcess.objects.run_by(row.pk, row.run).filter(seen_at=row.seen_at, ended_at=None, missed_at=None)
        if row.is_gone and here.update(missed_at=now):
            log.warning("worker_gone", command=row.command, host=row.host, pid=row.pid, seen_at=row.seen_at.isoformat())


def in_words(held: Collection[Any]) -> str:
    """`email, kafka`, or `transfer-requests 0–3, 7` for partitions."""
    names = sorted(name for name in held if isinstance(name, str))
    places = sorted(place for place in held if not isinstance(place, str))
    topics = [
        f"{topic} {_runs([number for _topic, number in part])}" for topic, part in groupby(places, lambda p: p[0])
    ]
    return ", ".join(names) if names else "; ".join(topics)


def _runs(numbers: list[int]) -> str:
    """`0–3, 7`."""
    parts: list[str] = []
    for _gap, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        part = [number for _at, number in run]
        parts.append(f"{part[0]}–{part[-1]}" if len(part) > 1 else str(part[0]))
    return ", ".join(parts)


def sweep_processes(now: datetime) -> int:
    """Delete those that have not reported for a day; returns how many."""
    return delete_in_chunks(WorkerProcess.objects.outdated(now))
