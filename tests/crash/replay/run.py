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
from tests.crash.oracle import Finding
from tests.crash.platform import Platform
from tests.crash.replay import oracle as replay_oracle
from tests.crash.replay.cases import EDITED, LEDGER, SOURCES, Cases, case_of
from tests.crash.replay.deaths import Deaths
from tests.crash.replay.failing import make_letters
from tests.crash.run import Outcome, Plan, directory, letters_of, verified
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
        wire = Wire(servers, f"crash-{name}-{random.SystemRandom().getrandbits(32):08x}.")
        cases, workers = Cases(plan.orders, plan.warehouses, self.edits), 1 if name == "sqlite" else 2
        with databases.fresh(url) as database, directory(plan.logs) as logs, Sink() as sink:
            environment = {
                **TIMINGS, "DATABASE_URL": database, "KAFKA_BOOTSTRAP_SERVERS": servers, "KAFKA_TOPIC_PREFIX": wire.prefix,
                "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}", "REPLAY_CHUNK": str(chunk_of(plan)),
            }  # fmt: skip
            with Platform(logs, environment) as platform:
                platform.manage("migrate", "--verbosity", "0")
                platform.manage("create_topics")
                try:
                    return Run(platform, wire, sink, cases, plan, say, workers).go()
                finally:
                    wire.close()
                    wire.delete(*INPUTS, BATCHES, *TOPICS)


def chunk_of(plan: Plan) -> int:
    """Many chunks, so that many of them can be cut short."""
    return max(10, min(100, plan.orders // 100))


class Run:
    """`workers` replay workers at a time; what they wait for is never killed."""

    def __init__(
        self, platform: Platform, wire: Wire, sink: Sink, cases: Cases, plan: Plan, say: Callable[[str], None],
        workers: int,
    ) -> None:  # fmt: skip
        self.platform, self.wire, self.sink, self.cases, self.plan, self.say = platform, wire, sink, cases, plan, say
        self.random = random.Random(plan.seed)
        self.deaths = Deaths(platform, plan, workers, self._all_done)

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
            self.say(f"{self.deaths.told()}; {self._progress()}")
            stuck = self._drain()
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
        sqlite = self.url.startswith("sqlite")
        for pk in gone:
            named = pk.replace("-", "") if sqlite or self.url.startswith("mysql") else pk
            databases.run(self.url, f"DELETE FROM outbox_deadletter WHERE id = '{named}'")
        return frozenset(ids[pk] for pk in closed), frozenset(ids[pk] for pk in gone)

    @property
    def url(self) -> str:
        return self.platform.environment["DATABASE_URL"]

    def _batches(self) -> list[dict[str, Any]]:
        listed = self.platform.manage("dead_letters", "batches", "--json").stdout.splitlines()
        return [json.loads(line) for line in listed]

    def _progress(self) -> dict[str, int]:
        found = databases.rows(self.url, "SELECT state, COUNT(*) FROM outbox_replayitem GROUP BY state")
        return {state: int(number) for state, number in found}

    def _all_done(self) -> bool:
        return not databases.rows(self.url, "SELECT id FROM outbox_replaybatch WHERE state <> 'done'")

    def _drain(self) -> str:
        """By workers that nobody kills, until every batch is done, or nothing has moved for long; why it is not."""
        workers = self.deaths.survivors()
        progress: dict[str, int] = {}
        since = time.monotonic()
        while not (done := self._all_done()) and time.monotonic() - since < STUCK:
            if (now := self._progress()) != progress:
                progress, since = now, time.monotonic()
            time.sleep(0.5)
        self.survived = {worker.name: worker.stop(60) for worker in workers}
        return "" if done else f"nothing moves: {progress}, {[(b['state'], b['note']) for b in self._batches()]}"

    # -- the end --------------------------------------------------------------------------------------
    def _outcome(self, asked: int, closed: frozenset[str], gone: frozenset[str], stuck: str, took: float) -> Outcome:
        published, notified = self.wire.output(), Committeds(self.wire, OUTPUT)
        seen = replay_oracle.Seen(
            self.cases, closed, gone, published.read(),
            databases.rows(self.url, "SELECT reference_id, stock_id, delta FROM buffer_inventorytracking WHERE reference_type <> 'OPENING'"),
            dict(databases.rows(self.url, "SELECT id, quantity FROM buffer_inventorystock")),
            [mail["to"] for mail in self.sink.accepted],
            [json.loads(record.value or b"{}") for record in notified.read()],
            letters_of(self.platform), self._batches(), databases.rows(self.url, ITEMS),
            databases.rows(self.url, "SELECT verb, COUNT(*) FROM outbox_operatoraction GROUP BY verb"),
            databases.rows(self.url, "SELECT letter, number FROM outbox_payloadrevision"),
        )  # fmt: skip
        published.close()
        notified.close()
        verify = self.platform.manage("verify", "--json", check=False)
        codes = {**self.codes, **self.survived}
        findings = [
            *replay_oracle.judge(seen),
            Finding("every batch is done in the end", f"after {took:.0f} s", [stuck] if stuck else []),
            self.deaths.finding(),
            Finding("SIGTERM ends every worker with exit code 0", str(codes), [c for c in codes.items() if c[1]]),
            verified(verify.returncode, verify.stdout or verify.stderr),
        ]
        figures = {
            "letters": len(seen.letters) + len(gone), "batches": asked, "chunk": chunk_of(self.plan),
            "closed by others": len(closed), "deaths": self.deaths.told(), "load": round(os.getloadavg()[0], 1),
            "seconds": round(took, 1),
        }  # fmt: skip
        return Outcome(findings, figures)
