"""A drill about the database: the machine that writes is lost, and the standby takes over under load."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.drills.healthy import COMMANDS
from tests.drills.stage import Drill, Plan, Stage
from tests.processes.pooler import Pair, PgBouncer, program, role_settings
from tests.services.service import DATABASE, USER

# What each worker counts of its work, in the transaction that does it.
COUNTS = """\
SELECT flow, name, sum(value) FROM outbox_flowcounter WHERE name IN ('read', 'batches_sent', 'sent') GROUP BY flow, name
"""
JOBS = "SELECT max(until) FROM outbox_joblease"
FLOWS = 6
REPLICA = re.compile(r"(ok  |FAIL)  replica ")
READ, UNREAD = "lists and gauges are read there", "the primary answers"
LIMIT = 20.0  # seconds after the address answers until every flow goes on
MINUTE = 90.0  # in which beat starts its jobs once

Counts = dict[tuple[str, str], int]


class DatabaseFailedOver(Drill):
    """PgBouncer is told which server writes; no process of Spillway is touched."""

    alerts = ("SpillwayWebMissing",)
    staged = "the PostgreSQL that writes is lost with its machine; a synchronous standby has every commit"
    workers = (*((name,) for name in COMMANDS), ("replay_topic", "--pending"))
    flow = ""
    settings = {"BUFFER_IDLE_SECONDS": "1", "BUFFER_CAP_SECONDS": "2"}

    def refusal(self, plan: Plan) -> str:
        if not plan.url.startswith("postgres"):
            return "it stages PostgreSQL: name a PostgreSQL by --database"
        return "" if program() else "PgBouncer is not installed"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="spillway-drill-") as name:
            folder = Path(name)
            folder.chmod(0o755)  # PostgreSQL and PgBouncer have users of their own
            with Pair(folder) as self.pair:
                for statement in role_settings():
                    databases.run(self.pair.primary.address, statement)
                with PgBouncer(folder, self.pair.primary.address, USER) as self.pooler:
                    stage.environment["DATABASE_URL"] = self.pooler.url(DATABASE)
                    stage.environment["REPLICA_URL"] = self.pair.standby.address
                    stage.platform.manage("migrate", "--verbosity", "0")
                    yield

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: len(self._counts()) >= FLOWS, 180, "every flow to work", 1)
        self._get_on(60)
        self._let_replica_fall_behind(stage)
        self.pair.primary.kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("$ pg_ctl promote; pgbouncer.ini names the other server; $ systemctl reload pgbouncer")
        self.pair.standby.promote()
        self.pooler.turn_to(self.pair.standby.address)
        wait_for(self._answers, 30, "the address to answer", 0.1)
        jobs = self._rows(JOBS)
        stage.say(f"every flow goes on {self._get_on(LIMIT):.1f} s after the address answers")
        wait_for(lambda: self._rows(JOBS) > jobs, MINUTE, "beat to start a job", 0.5)
        stage.say("beat starts its jobs")
        ended = [name for name, worker in stage.living.items() if not worker.alive]
        assert not ended, f"ended meanwhile: {', '.join(ended)}"

    def _let_replica_fall_behind(self, stage: Stage) -> None:
        """The standby is the read replica as well: it is read, then it is too late to be read, then it is read again."""

        def shown(words: str) -> Callable[[], str]:
            def line() -> str:
                lines = stage.platform.manage("doctor", check=False).stdout.splitlines()
                return next((line for line in lines if REPLICA.match(line) and words in line), "")

            return line

        for words, goes_on in ((READ, True), (UNREAD, False), (READ, True)):
            self.pair.standby.replay(goes_on=goes_on)
            stage.say(f"  {wait_for(shown(words), 60, f'doctor to say: {words}', 1)[:150]}")

    def _get_on(self, seconds: float) -> float:
        """Wait until each flow has worked once more; how long that took."""
        began, before = time.monotonic(), self._counts()

        def idle() -> list[tuple[str, str]]:
            now = self._counts()
            return [mark for mark, count in before.items() if now[mark] <= count]

        try:
            wait_for(lambda: not idle(), seconds, "every flow to go on", 0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}; idle: {idle()}") from None
        return time.monotonic() - began

    def _counts(self) -> Counts:
        return {(flow, name): int(value) for flow, name, value in self._rows(COUNTS)}

    def _answers(self) -> bool:
        try:
            return bool(self._rows("SELECT 1"))
        except psycopg.Error:
            return False

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.pooler.url(DATABASE).partition("?")[0], query)
