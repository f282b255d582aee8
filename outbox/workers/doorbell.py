"""Waiting for a commit: LISTEN on PostgreSQL, a short sleep elsewhere."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.telemetry.logs import log
from outbox.messages.notify import CHANNEL, SILENCE

LOOK = 0.015  # seconds between these looks
LOOKING = 1.5 * SILENCE  # seconds of such looks after a ring was heard: the next one may be a little late


SLICE = 0.25  # seconds after which a wait looks whether the process is to stop


class Doorbell:
    """Waits for rings on a connection of its own; without PostgreSQL it only waits."""

    def __init__(self, stop: threading.Event, using: str = DEFAULT_DB_ALIAS) -> None:
        self.stop = stop
        self.using = using
        self._listener: Any = None
        self.audible = connections[using].vendor == "postgresql"
        self._look_until = 0.0

    def patience(self, seconds: float) -> float:
        """How many of these seconds a relay may wait: shortly after a ring commits are silent, and it looks for them."""
        return min(seconds, LOOK) if time.monotonic() < self._look_until else seconds

    def wait(self, seconds: float) -> bool:
        """Whether somebody rang within `seconds`."""
        if not self.audible:
            self.stop.wait(seconds)
            return False
        deadline = time.monotonic() + seconds
        while not self.stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._heard(min(left, SLICE)):
                self._look_until = time.monotonic() + LOOKING
                return True
        return False

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _heard(self, seconds: float) -> bool:
        try:
            if self._listener is None:
                self._listen()
                return True  # what was committed before we listened rang for nobody
            return any(True for _ in self._listener.connection.notifies(timeout=seconds, stop_after=1))
        except Exception as error:  # noqa: BLE001 (polling is the truth; the bell only shortens the wait)
            log.warning("doorbell_lost", error=str(error).strip())
            self.close()
            self.stop.wait(seconds)
            return False

    def _listen(self) -> None:
        listener: Any = connections[self.using].copy()
        self._listener = listener
        with listener.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
