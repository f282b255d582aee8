"""What this process is doing, kept in memory for whoever reports that it lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import timedelta

HANGS = timedelta(minutes=15)  # without coming round: the longest round is a batch of mails that all time out


class Activity:
    """What the process has in hand, how much it has moved since it started, and when its loop last came round."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Collection[object], str, str]] = {}
        self.moved = 0
        self.round_at: float | None = None  # monotonic; None: nothing here runs in rounds

    def came_round(self, moved: int) -> None:
        """A loop of this process has come round, and moved so many records, messages or batches."""
        with self._lock:
            self.moved += moved
            self.round_at = time.monotonic()

    def hangs(self) -> bool:
        """Whether the loop came round once, and has not for long."""
        return self.round_at is not None and time.monotonic() - self.round_at > HANGS.total_seconds()

    def hold(self, name: str, held: Collection[object], unit: str, awaited: str = "") -> None:
        """What the loop `name` works on: names, or `(topic, partition)`; `unit` is what it moves (`records`).

        `awaited` says why it waits for the schema registry, if it does.
        """
        with self._lock:
            self._held[name] = (held, unit, awaited)

    def held(self) -> list[object]:
        """What all loops of this process work on."""
        with self._lock:
            return [one for held, _unit, _awaited in self._held.values() for one in held]

    def unit(self) -> str:
        """What its loops move; empty when nothing said so."""
        with self._lock:
            return next((unit for _held, unit, _awaited in self._held.values()), "")

    def awaited(self) -> str:
        """Why the first of its loops that does waits for the schema registry."""
        with self._lock:
            return next((awaited for _held, _unit, awaited in self._held.values() if awaited), "")


activity = Activity()
