"""One crash run of the outbox: orders are written, relays and the CDC listener killed, the oracle asked."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tests.crash import databases
from tests.crash.killer import Kill, rounds
from tests.crash.mail import oracle as mail_oracle
from tests.crash.mail.oracle import Event, Excuses
from tests.crash.mail.places import PLACES, TIMEOUT
from tests.crash.oracle import Finding
from tests.crash.platform import ROOT, Platform, Worker
from tests.crash.run import Outcome, everything_adds_up, killed, until_nothing_is_left
from tests.crash.wire import wait_for
from tests.prepared import PythonProcess

TIMINGS = {
    "OUTBOX_LEASE_SECONDS": "8", "OUTBOX_RECONCILE_SECONDS": "2", "OUTBOX_GRACE_SECONDS": "1",
    "OUTBOX_POLL_SECONDS": "2", "OUTBOX_MAX_RETRIES": "20", "OUTBOX_BACKOFF_BASE_SECONDS": "0.1",
    "OUTBOX_BACKOFF_CAP_SECONDS": "2", "EMAIL_TIMEOUT_SECONDS": str(TIMEOUT), "KAFKA_SESSION_TIMEOUT_MS": "6000",
    "LOG_LEVEL": "WARNING", "DJANGO_SETTINGS_MODULE": "config.settings",
}  # fmt: skip
COMMANDS = {
    "relay": ["relay_outbox", "--channel", "email"], "listen": ["listen_outbox"], "intake": ["ingest_messages"],
}  # fmt: skip
# The counter that grows only when this worker has done something.
DONE = {
    "relay": ("outbox_claims_total", {"path": "poll"}),
    "listen": ("outbox_claims_total", {"path": "cdc"}),
    "intake": ("intake_records_total", {}),
    "web": ("intake_records_total", {}),
}
STUCK = 120.0


@dataclass(frozen=True)
class Plan:
    """How much of what; `relays`, `intakes` and `webs` side by side (on SQLite one), `listeners` where a connector runs."""

    events: int
    kills: int
    seed: int
    place: str = "smtp"
    relays: int = 2
    listeners: int = 0
    intakes: int = 0
    webs: int = 0
    trouble: float = 0.02
    rate: float = 0.0  # events a second of each of the two writers; 0: as fast as they can
    grey: bool = False
    delay: float = 2.0  # seconds, at most, from a worker's first work to its end


@dataclass
class MailRun:
    """`platform` knows the database; `resume` is the operator's lever on a paused channel."""

    platform: Platform
    plan: Plan
    resume: Callable[[], object]
    say: Callable[[str], None] = print
    living: dict[str, Worker] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    writers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    recoveries: list[subprocess.Popen[bytes]] = field(default_factory=list)
    looked_at: float = 0.0
    killed_recoveries: int = 0
    writer = "tests.crash.mail.writer"

    def __post_init__(self) -> None:
        plan = self.plan
        self.random = random.Random(plan.seed)
        self.place = PLACES[plan.place](plan.trouble, plan.seed, plan.grey)
        self.names = [f"relay-{n}" for n in range(1, plan.relays + 1)]
        self.names += [f"listen-{n}" for n in range(1, plan.listeners + 1)]
        self.names += [f"intake-{n}" for n in range(1, plan.intakes + 1)]
        self.names += [f"web-{n}" for n in range(1, plan.webs + 1)]

    @property
    def url(self) -> str:
        return self.platform.environment["DATABASE_URL"]

    @property
    def accepted(self) -> list[str]:
        """The names of the mails that were accepted, in that order."""
        found: list[str] = self.place.accepted
        return found

    def go(self) -> Outcome:
        with ExitStack() as ends:
            ends.enter_context(self.place.server)
            self.platform.environment |= self.place.environment
            began = time.monotonic()
            self.writers = self._write()
            for process in self.writers:
                ends.callback(process.kill)
            for name in self.names:
                self._begin(name)
            self._kill_all()
            wait_for(lambda: all(process.poll() is not None for process in self.writers), 1800, "the writers")
            stuck = self._drain()
            took = time.monotonic() - began
            codes = {name: worker.stop() for name, worker in self.living.items()}
            failed = [process.returncode for process in self.writers if process.returncode]
            return self._outcome(stuck, codes, failed, took)

    # -- workers --------------------------------------------------------------------------------------
    def _write(self) -> list[subprocess.Popen[bytes]]:
        """Two writers, half of the events each."""
        plan, made = self.plan, []
        for number in (1, 2):
            journal = self.platform.directory / f"writer-{number}.journal"
            with (self.platform.directory / f"writer-{number}.log").open("wb") as log:
                made.append(PythonProcess(
                    [sys.executable, "-m", self.writer, str(journal), f"--name=w{number}x",
                     f"--events={plan.events // 2}", f"--seed={plan.seed + number}", f"--rate={plan.rate}"],
                    cwd=ROOT, env=self.platform.environment, stdout=log, stderr=subprocess.STDOUT,
                ))  # fmt: skip
        return made

    def _begin(self, name: str) -> None:
        """A life, in which it has done nothing yet."""
        self.done[name] = 0
        self._start(name)

    def _start(self, name: str) -> None:
        command, *arguments = COMMANDS[name.partition("-")[0]]
        self.living[name] = self.platform.start(command, *arguments, name=name)

    def _done(self, name: str) -> int:
        """In this life; on a busy machine one may not say it in time, who has said it before."""
        counter, labels = DONE[name.partition("-")[0]]
        self.done[name] = max(self.done[name], int(self.living[name].count(counter, **labels)))
        return self.done[name]

    def _kill_all(self) -> None:
        turns = list(rounds(sorted(self.names), self.plan.kills))
        for turn, chosen in enumerate(turns):
            # Spread over the run, each somewhere in its own part of it.
            share = self.plan.events * 0.8 * (turn + self.random.random()) / len(turns)
            wait_for(lambda share=share: self._attend() or self._far() >= share, 1800, f"{share:.0f} mails")
            for name in chosen:
                wait_for(lambda name=name: self._attend() or self._done(name), 60, f"{name} to claim something")
            if turn == 1:
                self.place.refuse_us()
            self._recover()
            time.sleep(self.random.random() * self.plan.delay)
            done = {name: self._done(name) for name in chosen}
            for name in chosen:
                self.living[name].kill()
            for name in chosen:
                self.kills.append(Kill(name, done[name], self.living[name].end()))
                self._begin(name)
            self.say(f"killed {done}, {len(self.accepted)} accepted")
            self._between(turn)

    def _far(self) -> int:
        """How much of the events is over."""
        return len(self.accepted)

    def _between(self, turn: int) -> None:
        """What else happens when those that were killed run again."""

    def _recover(self) -> None:
        """A round of recovery beside everything else; the one before is killed if it still runs."""
        for process in self.recoveries:
            if process.poll() is None:
                process.kill()
                process.wait()
                self.killed_recoveries += 1
        self.recoveries = [PythonProcess(
            [sys.executable, "manage.py", "recover_claims"], cwd=ROOT, env=self.platform.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )]  # fmt: skip

    def _attend(self) -> None:
        """An operator who resumes a paused channel; a run in which something broke by itself ends at once."""
        broken = [process.args for process in self.writers if process.poll()]
        broken += [worker.text[-1500:] for worker in self.living.values() if worker.process.poll()]
        assert not broken, broken
        if time.monotonic() > self.looked_at + 0.5:
            self.looked_at = time.monotonic()
            self.resume()

    def _drain(self) -> str:
        """Until nothing is unfinished; now and then with a round of recovery."""
        recovered = time.monotonic()

        def meanwhile() -> None:
            nonlocal recovered
            self._attend()
            if time.monotonic() - recovered > 10:
                recovered = time.monotonic()
                self._recover()

        def left() -> dict[str, int]:
            unfinished = self._left()
            return {"unfinished": unfinished, "accepted": len(self.accepted)} if unfinished else {}

        return until_nothing_is_left(left, STUCK, meanwhile)

    def _left(self) -> int:
        """Messages that are not finished."""
        ((left,),) = self._rows(mail_oracle.UNFINISHED)
        return int(left)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.url, statement)

    # -- the end --------------------------------------------------------------------------------------
    def _outcome(self, stuck: str, codes: dict[str, int], failed: Sequence[int], took: float) -> Outcome:
        for process in self.recoveries:
            process.wait(60)
        events, judged = self._judge(mail_oracle.journals(self.platform.directory))
        verify = self.platform.manage("verify", "--json", check=False)
        findings = [
            *judged,
            killed(self.kills, self.names, self.plan.kills),
            Finding("the writers ended well", "", list(failed)),
            *everything_adds_up(verify, codes, stuck, took),
        ]
        return Outcome(findings, self._figures(events, self.accepted, took))

    def _judge(self, journal: Sequence[Mapping[str, Any]]) -> tuple[list[Event], list[Finding]]:
        """What was promised and is in the database, and what the oracle says of it."""
        events = mail_oracle.committed(self.url, journal, by_mail=not self.place.honours_keys)
        excuses = None if self.place.honours_keys else Excuses(len(self.kills), self.place.silences)
        return events, mail_oracle.judge(events, journal, self.accepted, excuses)

    def _figures(self, events: Sequence[Any], accepted: Sequence[str], took: float) -> dict[str, Any]:
        paths = self._rows("SELECT path, COUNT(*) FROM outbox_deliveryattempt GROUP BY path")
        fates = self._rows("SELECT outcome, COUNT(*) FROM outbox_deliveryattempt GROUP BY outcome")
        return {
            "events": len(events), "accepted": len(accepted), "again": len(accepted) - len(set(accepted)),
            "uncertain": sum(event.uncertain > 0 for event in events), "kills": len(self.kills),
            "recoveries killed": self.killed_recoveries, "attempts": dict(paths), "outcomes": dict(fates),
            "troubles": self.place.happened, "load": round(os.getloadavg()[0], 1), "seconds": round(took, 1),
        }  # fmt: skip
