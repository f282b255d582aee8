"""One run on one database: start, kill, drain, stop, and hand everything to the oracle."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.crash import databases, oracle
from tests.crash.killer import Crew, Kill
from tests.crash.oracle import Finding, Produced, Published
from tests.crash.platform import Platform
from tests.crash.traffic import traffic
from tests.crash.wire import BATCHES, REQUESTS, Source, Wire, orders_in

TIMINGS = {
    "BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "6", "BUFFER_LEASE_SECONDS": "5",
    "KAFKA_SESSION_TIMEOUT_MS": "6000", "LOG_LEVEL": "WARNING",
}  # fmt: skip
MAX_BATCH = 200
QUIET_SECONDS = 20.0  # of traffic when nobody is killed
RATE = 4000  # records a second, roughly: a kill comes somewhere within a share
STUCK = 90.0


@dataclass(frozen=True)
class Plan:
    """How much of what."""

    orders: int
    warehouses: int
    kills: int
    seed: int
    seconds: float = 0.0  # of traffic when nobody is killed; else it comes in shares, one for every round of kills
    logs: Path | None = None  # where the workers' logs stay; None: nowhere
    evict: bool = False  # do not wait for the sessions of the dead
    broker_kills: int = 0  # of a broker of its own
    store: str = "django"  # of the throttler's overflow

    @property
    def shares(self) -> int:
        return 2 * self.kills or 1

    @property
    def delay(self) -> float:
        """How long after its first work a worker may live on."""
        return min(3.0, 0.2 + self.orders / self.shares / RATE)


@dataclass
class Outcome:
    """What the oracle says, and the figures around it."""

    findings: list[Finding]
    figures: dict[str, Any]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A database and topics of its own; nothing is left behind."""
    with Wire.of_a_run(servers, name, REQUESTS, BATCHES) as wire:
        environment = {**TIMINGS, **wire.environment, "BUFFER_MAX_BATCH": str(MAX_BATCH)}
        if not plan.kills:
            environment["BUFFER_LEASE_SECONDS"] = "30"  # nobody dies, so nobody is to be taken for dead
        with staged(url, plan.logs, environment) as platform:
            platform.manage("create_topics", REQUESTS, BATCHES)
            return Run(platform, wire, plan, 1 if name == "sqlite" else 2, say).go()


@contextmanager
def staged(url: str, logs: Path | None, environment: Mapping[str, str]) -> Iterator[Platform]:
    """Processes on a new database on that server; nothing is left behind."""
    with databases.fresh(url) as database, directory(logs) as place:
        with Platform(place, {**environment, "DATABASE_URL": database}) as platform:
            platform.manage("migrate", "--verbosity", "0")
            yield platform


@contextmanager
def django_on(platform: Platform) -> Iterator[None]:
    """Django in this process, which must not have had it before, on the database of the others."""
    os.environ |= platform.environment
    import django
    from django.db import connections

    django.setup()
    try:
        yield
    finally:
        connections.close_all()


def alone(run: Callable[..., Outcome], *given: Any) -> Outcome:
    """In a process of its own, because Django keeps its first database."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, *given).result()


@contextmanager
def directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="spillway-crash-") as temporary:
        yield Path(temporary)


class Run:
    """Workers `ingest-1 flush-1` and, where the database allows it, `ingest-2 flush-2`."""

    def __init__(self, platform: Platform, wire: Wire, plan: Plan, pairs: int, say: Callable[[str], None]) -> None:
        self.platform = platform
        self.wire = wire
        self.plan = plan
        self.say = say
        kinds = {"ingest": "ingest_events", "flush": "flush_buffer"}
        names = {f"{kind}-{n}": command for kind, command in kinds.items() for n in range(1, pairs + 1)}
        self.crew = Crew(platform, names, random.Random(plan.seed))

    def go(self) -> Outcome:
        samples = traffic(self.plan.orders, self.plan.warehouses, self.plan.seed)
        spread = 0.0 if self.plan.kills else self.plan.seconds or QUIET_SECONDS
        source = Source(self.wire, samples, self.plan.shares, spread)
        output = self.wire.output()
        try:
            began = time.monotonic()
            self.crew.start()
            source.start()
            mourn = self.wire.evict if self.plan.evict else lambda: None
            self.crew.kill_all(self.plan.kills, source.more, self.plan.delay, mourn)
            produced = source.finish()
            self.say(f"{len(produced)} records produced, {len(self.crew.kills)} kills; draining")
            drained = self._drain(produced, output)
            took = time.monotonic() - began
            codes = self.crew.stop()
            return self._outcome(produced, output.read(), codes, drained, took)
        finally:
            output.close()

    def _drain(self, produced: list[Produced], output: Any) -> str:
        """Until every order is out and nothing is unread."""
        wanted = len(oracle.histories(produced))

        def left() -> Counter[str]:
            sent = len(set(orders_in(output.read())))
            return +Counter({"orders not sent": wanted - sent, "records unread": self.wire.lag()})

        return until_nothing_is_left(left, STUCK)

    def _outcome(
        self, produced: list[Produced], published: list[Published], codes: dict[str, int], drained: str, took: float
    ) -> Outcome:
        letters = letters_of(self.platform)
        verify = self.platform.manage("verify", "--json", check=False)
        findings = [
            *oracle.judge(produced, published, letters, MAX_BATCH),
            killed(self.crew.kills, [*self.crew.commands], self.plan.kills),
            *everything_adds_up(verify, codes, drained, took),
        ]
        return Outcome(findings, self._figures(produced, published, letters, verify.stdout, took))

    def _figures(self, produced: Any, published: Any, letters: Any, verify: str, took: float) -> dict[str, Any]:
        read = json.loads(verify or '{"checks": []}')["checks"][:1]
        return {
            "records": len(produced), "read again": read[0]["expected"] - len(produced) if read else None,
            "deliveries": len(published), "letters": len(letters), "kills": len(self.crew.kills),
            "reruns": {f"{worker} {cause}": n for (worker, cause), n in sorted(self.crew.reruns.items())},
            "fences lost": self.crew.fences, "seconds": round(took, 1),
        }  # fmt: skip


def letters_of(platform: Platform, *narrowed: str) -> list[dict[str, Any]]:
    """Every dead letter, as the command prints it."""
    listed = platform.manage("dead_letters", "list", "--json", *narrowed, "--reason", "a crash run")
    return [json.loads(line) for line in listed.stdout.splitlines()]


def killed(kills: Sequence[Kill], names: Sequence[str], planned: int) -> Finding:
    """The proof: every worker died by signal 9 as often as planned, and had worked in the lives it lost."""
    done = {name: [kill.done for kill in kills if kill.worker == name] for name in names}
    offenders: list[Any] = [kill for kill in kills if kill.code != -9 or not kill.done]
    offenders += [{"worker": name, "killed": lives, "planned": planned} for name, lives in done.items()
                  if len(lives) != planned]  # fmt: skip
    return Finding("every worker was killed at work with SIGKILL", f"done in the lives lost: {done}", offenders)


def until_nothing_is_left(
    left: Callable[[], Mapping[str, int]], seconds: float, meanwhile: Callable[[], object] = lambda: None
) -> str:
    """Why it did not come to that: nothing of what was left has moved for so many seconds."""
    before, since = left(), time.monotonic()
    while before and time.monotonic() - since < seconds:
        meanwhile()
        time.sleep(0.5)
        if (now := left()) != before:
            before, since = now, time.monotonic()
    return f"nothing moves: {dict(before)}" if before else ""


def everything_adds_up(
    verify: subprocess.CompletedProcess[str], codes: Mapping[str, int], stuck: str, took: float
) -> list[Finding]:
    """How every run ends: nothing is left to do, SIGTERM ends each worker well, and `verify` finds no fault."""
    offenders: list[Any] = [verify.stdout[-500:] or verify.stderr[-500:] or f"exit code {verify.returncode}"]
    with suppress(ValueError, KeyError):
        offenders = [check for check in json.loads(verify.stdout)["checks"] if not check["ok"]] or offenders
    return [
        Finding("everything is done in the end", f"after {took:.0f} s", [stuck] if stuck else []),
        Finding("SIGTERM ends every worker with exit code 0", str(codes), [c for c in codes.items() if c[1]]),
        Finding("verify exits 0", "", offenders if verify.returncode else []),
    ]
