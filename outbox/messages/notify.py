"""Telling relays that something was committed: NOTIFY on PostgreSQL, by a thread of its own."""

from __future__ import annotations

import atexit
import threading
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.telemetry.logs import log

CHANNEL = "spillway_outbox"
SILENCE = 0.2  # seconds after a ring in which its process rings no more, and relays look by themselves


RETRY = 1.0  # seconds, while the database is away
IDLE = 30.0  # seconds after which a process that commits nothing gives the connection back


_lock = threading.Lock()
_ringers: dict[str, Ringer] = {}


def ring(using: str = DEFAULT_DB_ALIAS) -> None:
    """Tell relays that something was committed: soon, and without waiting for it."""
    if connections[using].vendor != "postgresql":
        return
    ringer = _ringers.get(using)
    if ringer is None or not ringer.is_alive():  # also in the child of a fork
        ringer = _start(using)
    ringer.pressed.set()


def _start(using: str) -> Ringer:
    with _lock:
        ringer = _ringers.get(using)
        if ringer is None or not ringer.is_alive():  # nobody else was faster
            ringer = _ringers[using] = Ringer(using)
            ringer.start()
        return ringer


@atexit.register
def stop_ringers() -> None:
    """Ring what is left to be rung, and give the connections back."""
    while _ringers:
        _, ringer = _ringers.popitem()
        ringer.leave()


class Ringer(threading.Thread):
    """Rings for its process, on a connection of its own: whoever commits does not wait for it.

    After the commit, because NOTIFY inside a transaction makes all committers queue (measured: a fifth to two
    fifths of their throughput).
    """

    def __init__(self, using: str) -> None:
        super().__init__(name="outbox-ring", daemon=True)
        self.using = using
        self.pressed = threading.Event()
        self.leaving = threading.Event()

    def run(self) -> None:
        while not self.leaving.is_set():
            if self.pressed.wait(IDLE):
                self.pressed.clear()
                self.leaving.wait(SILENCE if self._notify() else RETRY)
            else:
                connections[self.using].close()
        if self.pressed.is_set():
            self._notify()
        connections[self.using].close()

    def leave(self) -> None:
        self.leaving.set()
        self.pressed.set()
        self.join(1.0)

    def _notify(self) -> bool:
        try:
            self._session().execute(f"NOTIFY {CHANNEL}")
            return True
        except Exception as error:  # noqa: BLE001 (polling is the truth; the bell only shortens the wait)
            log.warning("ring_lost", error=str(error).strip())
            connections[self.using].close()
            self.pressed.set()
            return False

    def _session(self) -> Any:
        """The driver's own connection: a ring is too small for everything Django does around a statement."""
        connection: Any = connections[self.using]
        if connection.connection is None:
            connection.ensure_connection()
            # A commit that need not reach the disk: whoever lost it polls anyway.
            with connection.cursor() as cursor:
                cursor.execute("SET synchronous_commit TO off")
        return connection.connection
