"""A drill about the database: the server that writes is lost, and its standby takes over under load."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.drills.healthy import COMMANDS
from tests.drills.stage import Drill, Plan, Stage
from tests.processes.pooler import Pair, PgBouncer, program, role_settings
from tests.processes.proxy import Gate
from tests.processes.replication import MARIADB, MYSQL, ReplicatedPair
from tests.services.service import DATABASE, USER

# What each worker counts of its work, in the transaction that does it.
COUNTS = """\
SELECT flow, name, sum(value) FROM outbox_flowcounter WHERE name IN ('read', 'batches_sent', 'sent') GROUP BY flow, name
"""
JOBS = "SELECT max(until) FROM outbox_joblease"
FLOWS = 6
REPLICA = re.compile(r"(ok  |FAIL)  replica ")
READ, UNREAD = "lists and gauges are read there", "the primary answers"
ONLY_READS = 10.0  # seconds
LIMIT = 20.0  # seconds after the address answers until every flow goes on
MINUTE = 90.0  # in which beat starts its jobs once

Counts = dict[tuple[str, str], int]


class Servers(Protocol):
    """What the drill needs of one database's pair and of what leads to it."""

    url: str  # of whichever writes
    replica_url: str

    def kill(self) -> None:
        """The one that writes."""

    def take_over(self, stage: Stage) -> None:
        """As an operator does it."""

    def replay(self, *, goes_on: bool) -> None:
        """On the standby."""


class DatabaseFailedOver(Drill):
    """No process of Spillway is touched: what leads to the server is told which one writes."""

    alerts = ("SpillwayWebMissing",)
    staged = "the server that writes is lost; a synchronous standby has every commit"
    workers = (*((name,) for name in COMMANDS), ("replay_topic", "--pending"))
    flow = ""
    settings = {"BUFFER_IDLE_SECONDS": "1", "BUFFER_CAP_SECONDS": "2"}

    def refusal(self, plan: Plan) -> str:
        if plan.url.startswith("sqlite"):
            return "SQLite has no standby: name a server by --database"
        return "" if program() or not plan.url.startswith("postgres") else "PgBouncer is not installed"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="spillway-drill-") as name:
            folder = Path(name)
            folder.chmod(0o755)  # PostgreSQL and PgBouncer have users of their own
            pair = (
                postgres_pair(folder) if stage.plan.url.startswith("postgres") else mysql_pair(folder, stage.plan.url)
            )
            with pair as self.servers:
                stage.environment["DATABASE_URL"] = self.servers.url
                stage.environment["REPLICA_URL"] = self.servers.replica_url
                stage.platform.manage("migrate", "--verbosity", "0")
                yield

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: len(self._counts()) >= FLOWS, 180, "every flow to work", 1)
        self._get_on(60)
        self._let_replica_fall_behind(stage)
        self.servers.kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        self.servers.take_over(stage)
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
            self.servers.replay(goes_on=goes_on)
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
        except Exception:  # of whatever driver
            return False

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.servers.url.partition("?")[0], query)


# -- PostgreSQL behind PgBouncer -----------------------------------------------------------------------------
@contextmanager
def postgres_pair(folder: Path) -> Iterator[Servers]:
    with Pair(folder) as pair:
        for statement in role_settings():
            databases.run(pair.primary.address, statement.replace("spillway_app", USER))
        with PgBouncer(folder, pair.primary.address, USER) as pooler:
            yield PooledPair(pair, pooler)


class PooledPair:
    def __init__(self, pair: Pair, pooler: PgBouncer) -> None:
        self.pair, self.pooler = pair, pooler
        self.url, self.replica_url = pooler.url(DATABASE), pair.standby.address
        self.kill, self.replay = pair.primary.kill, pair.standby.replay

    def take_over(self, stage: Stage) -> None:
        stage.say("$ pg_ctl promote; pgbouncer.ini names the other server; $ systemctl reload pgbouncer")
        self.pair.standby.promote()
        self.pooler.turn_to(self.pair.standby.address)


# -- MariaDB or MySQL behind a TCP proxy ---------------------------------------------------------------------
@contextmanager
def mysql_pair(folder: Path, url: str) -> Iterator[Servers]:
    mariadb = "mariadb" in databases.rows(url, "SELECT version()")[0][0].lower()
    with ReplicatedPair(MARIADB if mariadb else MYSQL, folder) as pair, closing(Gate(pair.url(pair.primary))) as gate:
        yield ProxiedPair(pair, gate)


class ProxiedPair:
    def __init__(self, pair: ReplicatedPair, gate: Gate) -> None:
        self.pair, self.gate = pair, gate
        self.url, self.replica_url = gate.url, pair.url(pair.standby)
        self.kill, self.replay = pair.kill, pair.replay

    def take_over(self, stage: Stage) -> None:
        """The proxy turns too early: for a while everybody is let in by a server that only reads."""
        self.gate.turn(self.pair.standby.port)
        stage.say(f"the proxy leads to the replica, which only reads, for {ONLY_READS:g} s")
        time.sleep(ONLY_READS)
        stage.say("SQL: STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF")
        self.pair.promote()
