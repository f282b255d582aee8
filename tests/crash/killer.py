"""Kills workers with SIGKILL while they are at work, starts them again, and keeps the proof."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.crash.platform import Platform, Sample, Worker, total
from tests.crash.wire import wait_for

# The counter that grows only when this worker has done something.
DONE = {
    "ingest_events": "ingest_records_total",
    "flush_buffer": "publish_batches_total",
    "track_inventory": "ledger_movements_total",
}
UP = 60.0


@dataclass(frozen=True)
class Kill:
    """A life that was ended: what the worker had done in it, and how the process died."""

    worker: str
    done: int
    code: int


@dataclass
class Crew:
    """Named workers of one kind or another, always running, some of the time dead."""

    platform: Platform
    commands: dict[str, str]  # name → command
    rng: random.Random
    living: dict[str, Worker] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    reruns: Counter[tuple[str, str]] = field(default_factory=Counter)
    fences: int = 0

    def start(self) -> None:
        for name, command in self.commands.items():
            self.living[name] = self.platform.start(command, name=name)

    def kill_all(self, kills: int, more: Callable[[], None], delay: float, mourn: Callable[[], None]) -> None:
        """Kill every worker `kills` times; `more` gives them work, and none dies before it has done some."""
        for chosen in rounds(sorted(self.commands), kills):
            for name in self.commands:
                wait_for(lambda name=name: self._ready(name), UP, f"{name} to be ready")
            more()
            for name in chosen:
                wait_for(lambda name=name: self._done(name), UP, f"{name} to do something")
            time.sleep(self.rng.random() * delay)
            self._kill(chosen)
            mourn()

    def stop(self) -> dict[str, int]:
        """SIGTERM for all; exit codes by name."""
        for worker in self.living.values():
            self._remember(worker)
        for worker in self.living.values():
            worker.process.send_signal(signal.SIGTERM)
        return {name: worker.end() for name, worker in self.living.items()}

    def _kill(self, names: Sequence[str]) -> None:
        done = {}
        for name in names:
            done[name] = self._remember(self.living[name])
            self.living[name].process.send_signal(signal.SIGKILL)
        for name in names:
            self.kills.append(Kill(name, done[name], self.living[name].end()))
            self.living[name] = self.platform.start(self.commands[name], name=name)

    def _ready(self, name: str) -> bool:
        """It runs, and a consumer has partitions: else the others would have done everything before it came."""
        wanted = "flush_seconds_count" if self.commands[name] == "flush_buffer" else "consumer_lag_records"
        return any(found == wanted for found, _, _ in self.living[name].metrics())

    def _done(self, name: str) -> int:
        return int(self.living[name].count(DONE[self.commands[name]]))

    def _remember(self, worker: Worker) -> int:
        samples: list[Sample] = worker.metrics()
        for name, labels, value in samples:
            if name == "transaction_rerun_total":
                self.reruns[worker.name.rstrip("-12"), labels["cause"]] += int(value)
        self.fences += int(total(samples, "fence_lost_total"))
        return int(total(samples, DONE[self.commands[worker.name]]))


def rounds(names: Sequence[str], kills: int) -> Iterator[list[str]]:
    """Each name `kills` times: in turn the first and the second of each kind, at the end all at once."""
    for _ in range(kills - 1):
        for number in ("1", "2"):
            chosen = [name for name in names if name.endswith(number)]
            if chosen:
                yield chosen
    if kills:
        yield list(names)
