"""The doorbell: on PostgreSQL a commit wakes the relay at once; elsewhere it looks often while there is work."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.logs import log

CHANNEL = "spillway_outbox"
# Commits of one process within so many seconds share a ring. The relay looks again after LOOK_AGAIN, so that
# the last of them is not lost.
SILENCE = 0.02
LOOK_AGAIN = 0.03
SLICE = 0.25  # seconds after which a wait looks whether the process is to stop

_lock = threading.Lock()
_rang_at = 0.0


def ring(using: str = DEFAULT_DB_ALIAS) -> None:
    """Tell relays that something was committed; after the commit, because NOTIFY inside a transaction makes all
    committers queue (measured: a fifth to two fifths of their throughput)."""
    global _rang_at
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    with _lock:
        now = time.monotonic()
        if now - _rang_at < SILENCE:
            return
        _rang_at = now
    with connection.cursor() as cursor:
        # A commit of its own, and one that need not reach the disk: whoever lost it polls anyway.
        cursor.execute(f"BEGIN; SET LOCAL synchronous_commit TO off; NOTIFY {CHANNEL}; COMMIT")


class Doorbell:
    """Waits for rings on a connection of its own; without PostgreSQL it only waits."""

    def __init__(self, stop: threading.Event, using: str = DEFAULT_DB_ALIAS) -> None:
        self.stop = stop
        self.using = using
        self._listener: Any = None
        self.audible = connections[using].vendor == "postgresql"

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
