"""One run: letters of every source, batches over them, workers that are killed at each boundary and inside, the oracle."""

from __future__ import annotations

import base64
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.crash import databases
from tests.crash.platform import Platform
from tests.crash.replay import oracle as replay_oracle
from tests.crash.replay.cases import EDITED, LEDGER, SOURCES, Cases, case_of
from tests.crash.replay.deaths import Deaths
from tests.crash.replay.failing import make_letters
from tests.crash.run import Outcome, Plan, everything_adds_up, letters_of, staged, until_nothing_is_left
from tests.crash.throttler.topics import OUTPUT, TOPICS, Committeds
from tests.crash.wire import BATCHES, Wire
from tests.notifications.smtp_sink import Sink
from tests.prepared import run_python

TIMINGS = {
    "BUFFER_IDLE_SECONDS": "1", "BUFFER_CAP_SECONDS": "3", "KAFKA_SESSION_TIMEOUT_MS": "6000", "LOG_LEVEL": "WARNING",
    "OUTBOX_POLL_SECONDS": "1", "EMAIL_CHANNEL": "smtp", "EMAIL_WINDOW": "10",
    "DJANGO_SETTINGS_MODULE": "config.settings",
}  # fmt: skip
INPUTS = ("transfer-requests", "PAYMENT_SUCCESS")
REASON = "the cause is mended"
BESIDE = 10  # letters of each source that somebody else closes; half of them are gone before their turn
STUCK = 180.0
ITEMS = "SELECT batch_id, state, note, COUNT(*) FROM outbox_replayitem GROUP BY batch_id, state, note"


@dataclass(frozen=True)
class Replays:
    """A flow of the command line: whether the ledger's letters are edited, or taken back as they are."""

    edits: bool = False

    def run(self, name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
        """A database, topics and a mail server of its own; nothing is left behind."""
        cases, workers = Cases(plan.orders, plan.warehouses, self.edits), 1 if name == "sqlite" else 2
        with Wire.of_a_run(servers, name, *INPUTS, BATCHES, *TOPICS) as wire, Sink() as sink:
            environment = {
                **TIMINGS, **wire.environment, "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}",
                "REPLAY_CHUNK": str(chunk_of(plan)),
            }  # fmt: skip
            with staged(url, plan.logs, environment) as platform:
                platform.manage("create_topics")
                return Run(platform, sink, plan, say, workers, wire, cases).go()


def chunk_of(plan: Plan) -> int:
    """Many chunks, so that many of them can be cut short."""
    return max(10, min(100, plan.orders // 100))


class BatchRun:
    """Batches over what has failed or was sent, by workers that die where `deaths` says."""

    deaths: Deaths

    def __init__(self, platform: Platform, sink: Sink, plan: Plan, say: Callable[[str], None]) -> None:
        self.platform, self.sink, self.plan, self.say = platform, sink, plan, say
        self.random = random.Random(plan.seed)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.platform.environment["DATABASE_URL"], statement)

    def batches(self) -> list[dict[str, Any]]:
        listed = self.platform.manage("dead_letters", "batches", "--json").stdout.splitlines()
        return [json.loads(line) for line in listed]

    def actions(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT verb, COUNT(*) FROM outbox_operatoraction GROUP BY verb")

    def progress(self) -> dict[str, int]:
        found = self.rows("SELECT state, COUNT(*) FROM outbox_replayitem GROUP BY state")
        return {state: int(number) for state, number in found}

    def all_done(self) -> bool:
        return not self.left()

    def left(self) -> dict[str, int]:
        """Batches that are not done, and how far all of them are."""
        unfinished = len(self.rows("SELECT id FROM outbox_replaybatch WHERE state <> 'done'"))
        return {"batches": unfinished, **self.progress()} if unfinished else {}

    def drain(self, meanwhile: Callable[[], None] = lambda: None) -> str:
        """By workers that nobody kills, until every batch is done."""
        workers = self.deaths.survivors()
        stuck = until_nothing_is_left(self.left, STUCK, meanwhile)
        self.survived = {worker.name: worker.stop(60) for worker in workers}
        return stuck and f"{stuck}, {[(batch['state'], batch['note']) for batch in self.batches()]}"


class Run(BatchRun):
    """What the workers wait for is never killed."""

    def __init__(
        self, platform: Platform, sink: Sink, plan: Plan, say: Callable[[str], None], workers: int, wire: Wire,
        cases: Cases,
    ) -> None:  # fmt: skip
        super().__init__(platform, sink, plan, say)
        self.wire, self.cases = wire, cases
        self.deaths = Deaths(platform, plan, workers, self.all_done)

    def go(self) -> Outcome:
        began = time.monotonic()
        make_letters(self.platform, self.wire, self.sink, self.cases)
        self.say(f"letters are made after {time.monotonic() - began:.0f} s")
        with self._receivers():
            ids = [self._ask(source) for source in SOURCES]
            self.deaths.at_boundaries(first=True)
            closed, gone = self._others()
            self.deaths.at_boundaries(first=False)
            self.deaths.inside()
            self.say(f"{self.deaths.told()}; {self.progress()}")
            stuck = self.drain()
        return self._outcome(len(ids), closed, gone, stuck, time.monotonic() - began)

    @contextmanager
    def _receivers(self) -> Iterator[None]:
        """Those who carry the effects out."""
        commands = {
            "flush": ["flush_buffer"], "relay": ["relay_outbox"], "throttler": ["run_throttler", "--instance", "a"],
        }  # fmt: skip
        workers = [self.platform.start(*command, name=name) for name, command in commands.items()]
        yield
        self.codes = {worker.name: worker.stop(60) for worker in workers}

    def _ask(self, source: str) -> str:
        """A batch over everything of a source, for a worker."""
        edited = self.cases.edits and source == LEDGER
        verb = ["edit", "--set", "$.items[0].quantity", str(EDITED), "--as", "json"] if edited else ["requeue"]
        asked = ["--source", source, "--rate", "100000", "--canary", "7", "--reason", REASON, "--detach"]
        return self.platform.manage("dead_letters", *verb, *asked).stdout

    def _others(self) -> tuple[frozenset[str], frozenset[str]]:
        """Somebody closes the newest letters of each source while they are pinned; some of those are rotated away."""
        newest = [letter for source in SOURCES for letter in letters_of(self.platform, "--source", source)[-BESIDE:]]
        ids = {letter["id"]: case_of(base64.b64decode(letter["payload_b64"])) for letter in newest}
        done = run_python("-m", "tests.crash.replay.people", "resolve", *ids, env=self.platform.environment)
        done.check_returncode()
        closed = json.loads(done.stdout.splitlines()[-1])
        gone = closed[::2]
        url = self.platform.environment["DATABASE_URL"]
        for pk in gone:
            named = pk if url.startswith("postgres") else pk.replace("-", "")
            databases.run(url, f"DELETE FROM outbox_deadletter WHERE id = '{named}'")
        return frozenset(ids[pk] for pk in closed), frozenset(ids[pk] for pk in gone)

    # -- the end --------------------------------------------------------------------------------------
    def _outcome(self, asked: int, closed: frozenset[str], gone: frozenset[str], stuck: str, took: float) -> Outcome:
        published, notified = self.wire.output(), Committeds(self.wire, OUTPUT)
        seen = replay_oracle.Seen(
            self.cases, closed, gone, published.read(),
            self.rows("SELECT reference_id, stock_id, delta FROM buffer_inventorytracking WHERE reference_type <> 'OPENING'"),
            dict(self.rows("SELECT id, quantity FROM buffer_inventorystock")),
            [mail["to"] for mail in self.sink.accepted],
            [json.loads(record.value or b"{}") for record in notified.read()],
            letters_of(self.platform), self.batches(), self.rows(ITEMS), self.actions(),
            self.rows("SELECT letter, number FROM outbox_payloadrevision"),
        )  # fmt: skip
        published.close()
        notified.close()
        verify = self.platform.manage("verify", "--json", check=False)
        findings = [
            *replay_oracle.judge(seen),
            self.deaths.finding(),
            *everything_adds_up(verify, {**self.codes, **self.survived}, stuck, took),
        ]
        figures = {
            "letters": len(seen.letters) + len(gone), "batches": asked, "chunk": chunk_of(self.plan),
            "closed by others": len(closed), "deaths": self.deaths.told(), "load": round(os.getloadavg()[0], 1),
            "seconds": round(took, 1),
        }  # fmt: skip
        return Outcome(findings, figures)
