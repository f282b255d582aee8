"""One throttler that lives several lives: killed at random, sometimes asked to leave, always started again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.crash.platform import Platform, Worker

AWAY_AT_START = "Unable to bootstrap"  # a worker that finds no broker when it starts ends; who runs it starts it again
UP = 40.0  # seconds to wait for a life to do something
LONGEST, AWAY = 4.0, 2.0  # seconds, at most, of work before the end, and until the next life
LEAVES = 1


@dataclass(frozen=True)
class Life:
    """What a worker had done when it ended, and how."""

    done: int
    code: int
    killed: bool


class Member:
    """One of several processes; its ends come on a thread of its own."""

    def __init__(self, platform: Platform, name: str, arguments: Sequence[str], kills: int, seed: int) -> None:
        self.platform, self.name, self.arguments = platform, name, arguments
        self.random = random.Random(f"{seed} {name}")
        self.ends = [True] * kills + [False] * LEAVES * bool(kills)
        self.random.shuffle(self.ends)
        self.lives: list[Life] = []
        self.worker: Worker | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def begin(self) -> None:
        self._start()
        self._thread.start()

    def finish(self) -> None:
        """Wait until it has died as often as planned."""
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def attend(self) -> bool:
        """Start it again if it found no broker; False when it ended by itself for another reason."""
        worker = self.worker
        if worker is None or worker.alive:
            return True
        if AWAY_AT_START not in worker.text:
            return False
        time.sleep(1.0)
        self._start()
        return True

    def stop(self) -> int:
        assert self.worker is not None
        return self.worker.stop()

    @property
    def has_partitions(self) -> bool:
        return self.worker is not None and any(name == "consumer_lag_records" for name, _, _ in self.worker.metrics())

    def _live(self) -> None:
        try:
            for killed in self.ends:
                self._end(killed)
                time.sleep(self.random.random() * AWAY)
                self._start()
        except BaseException as error:
            self.failure = error

    def _start(self) -> None:
        self.worker = self.platform.start("run_throttler", *self.arguments, name=self.name)

    def _end(self, killed: bool) -> None:
        deadline = time.monotonic() + UP
        while not self._done() and self.attend() and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(self.random.random() * LONGEST)
        self.attend()
        done, worker = self._done(), self.worker
        assert worker is not None
        code = worker.kill() if killed else worker.stop()
        self.lives.append(Life(done, code, killed))

    def _done(self) -> int:
        return int(self.worker.count("throttler_messages_total")) if self.worker else 0
