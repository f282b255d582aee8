"""Waits until messages are committed: LISTEN on PostgreSQL, a short sleep elsewhere."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.database.dialects.vendors import is_pooled
from config.telemetry.logs import log
from outbox.messages.notify import CHANNEL, PAUSE

LOOK = 0.015  # seconds between two polls shortly after a NOTIFY
LOOKING = 1.5 * PAUSE  # seconds of such polls; more than PAUSE, because the next NOTIFY may be a little late
SLICE = 0.25  # seconds after which a wait checks whether the process is to stop


class Doorbell:
    """Waits for NOTIFY on a connection of its own; without PostgreSQL, or behind a pooler, it only sleeps."""

    def __init__(self, stop: threading.Event, using: str = DEFAULT_DB_ALIAS) -> None:
        self.stop = stop
        self.using = using
        self._listener: Any = None
        self.listens = connections[using].vendor == "postgresql" and not is_pooled(using)
        self._look_until = 0.0

    def longest_wait(self, seconds: float) -> float:
        """`seconds`, or 15 ms shortly after a NOTIFY: commits send no second one then, so the relay polls for them."""
        return min(seconds, LOOK) if time.monotonic() < self._look_until else seconds

    def wait(self, seconds: float) -> bool:
        """Whether a NOTIFY arrived within `seconds`."""
        if not self.listens:
            self.stop.wait(seconds)
            return False
        deadline = time.monotonic() + seconds
        while not self.stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._notified(min(left, SLICE)):
                self._look_until = time.monotonic() + LOOKING
                return True
        return False

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _notified(self, seconds: float) -> bool:
        try:
            if self._listener is None:
                self._listen()
                return True  # of a commit before LISTEN we get no NOTIFY
            return any(True for _ in self._listener.connection.notifies(timeout=seconds, stop_after=1))
        except Exception as error:  # noqa: BLE001 (polling finds the messages, too)
            log.warning("doorbell_lost", error=str(error).strip())
            self.close()
            self.stop.wait(seconds)
            return False

    def _listen(self) -> None:
        listener: Any = connections[self.using].copy()
        self._listener = listener
        with listener.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
