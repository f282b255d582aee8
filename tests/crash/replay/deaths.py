"""Lives of replay workers, each ended by SIGKILL at a place that was chosen before; and the proof."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash import databases
from tests.crash.oracle import Finding
from tests.crash.platform import Platform, Worker
from tests.crash.replay.victim import OF_LETTERS
from tests.crash.run import Plan

FIRST = ("pinned", "counted", "judged", "started", "begun")  # before any letter is touched
PROGRAM = "tests.crash.replay.victim"
LAST_WORDS = re.compile(r"^dies at (.*)$", re.MULTILINE)
PATIENCE = 120.0  # seconds that a life may last
MOST_STATEMENTS = 60  # of chunks, until a worker dies inside of one


@dataclass
class Deaths:
    """`plan.kills` deaths inside of chunks, and one at each boundary, of `workers` at a time; `beside` follows each."""

    platform: Platform
    plan: Plan
    workers: int
    over: Callable[[], bool]
    boundaries: Sequence[str] = OF_LETTERS
    beside: Callable[[], None] = lambda: None
    places: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed)

    def at_boundaries(self, *, first: bool) -> None:
        """One life for each, one after the other: the next one goes on with what the last one held."""
        for place in self.boundaries:
            if (place in FIRST) is first:
                self._await(self._begin(place, 1), place)

    def once(self, place: str, *command: str) -> None:
        """The life of a command in a terminal."""
        self._await(self.platform.run(["-m", PROGRAM, place, *command], "terminal", {}), place)

    def inside(self) -> None:
        """Lives side by side, each with a number of statements left."""
        left, living = self.plan.kills, [self._next(n) for n in range(1, self.workers + 1)]
        while left > 0 and not self.over():
            for number, (place, worker, since) in enumerate(living):
                if worker.alive and time.monotonic() - since < PATIENCE:
                    continue
                self._await(worker, place)
                left -= 1
                living[number] = self._next(number + 1)
            time.sleep(0.05)
        for _, worker, _ in living:
            worker.kill()
        self._free()

    def survivors(self) -> list[Worker]:
        """Workers that nobody kills; they begin at once."""
        self._free()
        return [self.platform.start("replay_letters", name=f"replay-{n}") for n in range(1, self.workers + 1)]

    def told(self) -> str:
        inside = sum(number for place, number in self.places.items() if place.startswith("statement"))
        return f"{inside} deaths inside of chunks, {self.places.total() - inside} between"

    def finding(self) -> Finding:
        """Each died by signal 9 where it was to die."""
        inside = sum(number for place, number in self.places.items() if place.startswith("statement"))
        offenders = [*self.faults, *sorted({*self.boundaries} - self.places.keys())]
        offenders += [f"only {inside} of {self.plan.kills} inside of chunks"] if inside < self.plan.kills else []
        return Finding("workers were killed at every boundary and inside of chunks", self.told(), offenders)

    def _next(self, number: int) -> tuple[str, Worker, float]:
        place = str(self.random.randint(1, MOST_STATEMENTS))
        return place, self._begin(place, number), time.monotonic()

    def _begin(self, place: str, number: int) -> Worker:
        return self.platform.launch(["-m", PROGRAM, place, "replay_letters"], f"victim-{number}", {})

    def _await(self, worker: Worker, place: str) -> None:
        """Its end; a life that ended otherwise, or not at all, is a fault."""
        try:
            code = worker.end(PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            code = 0
        said = LAST_WORDS.findall(worker.text)
        if code == -9 and said:
            self.places[said[-1].partition(":")[0]] += 1
        else:
            self.faults.append(f"{place}: ended with {code}: {worker.text[-300:]}")
        self._free()
        self.beside()

    def _free(self) -> None:
        """What the dead one held is free at once; a living one that held something has to notice."""
        databases.run(
            self.platform.environment["DATABASE_URL"], "UPDATE outbox_replaybatch SET lease_until = created_at"
        )
