"""The doorbell: on PostgreSQL a commit wakes the relay at once; elsewhere it looks often while there is work."""

from __future__ import annotations

import atexit
import threading
import time
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.logs import log

CHANNEL = "spillway_outbox"
SILENCE = 0.2  # seconds after a ring in which its process rings no more, and relays look by themselves
LOOK = 0.015  # seconds between these looks
ECHO = 1.5 * SILENCE  # seconds of such looks after a ring was heard: the next one may be a little late
RETRY = 1.0  # seconds, while the database is away
IDLE = 30.0  # seconds after which a process that commits nothing gives the connection back
SLICE = 0.25  # seconds after which a wait looks whether the process is to stop

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
def hush() -> None:
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


class Doorbell:
    """Waits for rings on a connection of its own; without PostgreSQL it only waits."""

    def __init__(self, stop: threading.Event, using: str = DEFAULT_DB_ALIAS) -> None:
        self.stop = stop
        self.using = using
        self._listener: Any = None
        self.audible = connections[using].vendor == "postgresql"
        self._echoes_until = 0.0

    def patience(self, seconds: float) -> float:
        """How many of these seconds a relay may wait: shortly after a ring commits are silent, and it looks for them."""
        return min(seconds, LOOK) if time.monotonic() < self._echoes_until else seconds

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
                self._echoes_until = time.monotonic() + ECHO
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
