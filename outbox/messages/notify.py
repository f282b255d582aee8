"""Tells relays that messages were committed: a background thread sends NOTIFY on PostgreSQL."""

from __future__ import annotations

import atexit
import threading
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from config.telemetry.logs import log

CHANNEL = "spillway_outbox"
# This commit need not reach the disk: a NOTIFY that is lost is made up for by polling. In its transaction, because
# behind a pooler the session is everybody's: set for the session, others would lose what they had committed.
TELL = f"BEGIN; SET LOCAL synchronous_commit TO off; NOTIFY {CHANNEL}; COMMIT"
PAUSE = 0.2  # seconds after a NOTIFY before its process sends another; relays poll meanwhile
RETRY = 1.0  # seconds, while the database is away
IDLE = 30.0  # seconds after which a process that commits nothing gives the connection back

_lock = threading.Lock()
_notifiers: dict[str, Notifier] = {}


def notify_relays(using: str = DEFAULT_DB_ALIAS) -> None:
    """Let the background thread tell relays that something was committed; returns at once."""
    if connections[using].vendor != "postgresql":
        return
    notifier = _notifiers.get(using)
    if notifier is None or not notifier.is_alive():  # also in the child of a fork
        notifier = _start(using)
    notifier.wanted.set()


def _start(using: str) -> Notifier:
    with _lock:
        notifier = _notifiers.get(using)
        if notifier is None or not notifier.is_alive():  # nobody else was faster
            notifier = _notifiers[using] = Notifier(using)
            notifier.start()
        return notifier


@atexit.register
def stop_notifiers() -> None:
    """Send what is still to be sent, and close the connections."""
    while _notifiers:
        _, notifier = _notifiers.popitem()
        notifier.leave()


class Notifier(threading.Thread):
    """Sends NOTIFY for its process, on a connection of its own, so that no commit waits for it.

    After the commit, because NOTIFY inside a transaction makes all committers queue (measured: a fifth to two
    fifths of their throughput).
    """

    def __init__(self, using: str) -> None:
        super().__init__(name="outbox-notify", daemon=True)
        self.using = using
        self.wanted = threading.Event()
        self.leaving = threading.Event()

    def run(self) -> None:
        while not self.leaving.is_set():
            if self.wanted.wait(IDLE):
                self.wanted.clear()
                self.leaving.wait(PAUSE if self._notify() else RETRY)
            else:
                connections[self.using].close()
        if self.wanted.is_set():
            self._notify()
        connections[self.using].close()

    def leave(self) -> None:
        self.leaving.set()
        self.wanted.set()
        self.join(1.0)

    def _notify(self) -> bool:
        try:
            self._session().execute(TELL)
            return True
        except Exception as error:  # noqa: BLE001 (polling finds the messages, too)
            log.warning("ring_lost", error=str(error).strip())
            connections[self.using].close()
            self.wanted.set()
            return False

    def _session(self) -> Any:
        """The driver's own connection: what Django does around a statement takes longer than a NOTIFY."""
        connection: Any = connections[self.using]
        if connection.connection is None:
            connection.ensure_connection()
        return connection.connection
