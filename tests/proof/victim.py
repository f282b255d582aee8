"""python -m tests.proof.victim DEED NUMBER command …: a worker to which something happens before one of its effects.

An effect is what others can see: a statement that writes, a COMMIT, a request that changes something in Kafka, a line to a
mail server. Between two of them a death looks the same from outside, whatever the line it comes at.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processes.saboteur import freeze, kill

EFFECTS = "PROOF_EFFECTS"  # in the environment: the file in which it leaves its effects when it ends by itself
READS = re.compile(
    r"\s*(SELECT(?!.*\bFOR (UPDATE|SHARE)\b)|SET|SHOW|SAVEPOINT|RELEASE|PREPARE|DEALLOCATE|PRAGMA|BEGIN|EXPLAIN)\b",
    re.DOTALL,
)
CHANGES = {
    0: "Produce", 8: "OffsetCommit", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    28: "TxnOffsetCommit",
}  # fmt: skip
FROZEN_FOR = 3600.0  # seconds


class Victim:
    """Counts the effects of all threads, and does its deed once, before the one of that number."""

    def __init__(self, deed: str, number: int) -> None:
        self.deed, self.number = deed, number
        self.effects: list[str] = []
        self.lock = threading.Lock()

    def before(self, effect: str) -> None:
        with self.lock:
            self.effects.append(effect)
            if len(self.effects) != self.number:
                return
            self.leave()
            if self.deed == "kill":
                kill()
            elif self.deed == "freeze":
                freeze()
                CLOCK.ahead = FROZEN_FOR

    def leave(self) -> None:
        """The last of them is the one it did not come to."""
        Path(os.environ[EFFECTS]).write_text(json.dumps(self.effects))


class Clock:
    """`time.monotonic`, which goes on while the process is stopped: by an hour, so that nobody has to wait for leases."""

    def __init__(self) -> None:
        self.usual, self.ahead = time.monotonic, 0.0

    def __call__(self) -> float:
        return self.usual() + self.ahead


CLOCK = Clock()


def wrap(owner: Any, name: str, effect_of: Callable[..., str], victim: Victim) -> None:
    usual = getattr(owner, name)

    def wrapped(self: Any, *given: Any, **options: Any) -> Any:
        if effect := effect_of(self, *given):
            victim.before(effect)
        return usual(self, *given, **options)

    setattr(owner, name, wrapped)


def statement(_cursor: object, sql: Any, *_more: object) -> str:
    text = sql if isinstance(sql, str) else str(sql)
    return "" if READS.match(text) else " ".join(text.split())[:100]


def request(_transport: object, data: bytes) -> str:
    """The first request among these bytes that changes something: a frame is its size, its key and the rest."""
    at = 0
    while at + 6 <= len(data):
        size, key = struct.unpack("!ih", data[at : at + 6])
        if key in CHANGES:
            return CHANGES[key]
        at += 4 + size
    return ""


def watch(victim: Victim) -> None:
    import smtplib

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper
    from kafka.net.transport import KafkaTCPTransport

    wrap(CursorWrapper, "_execute", statement, victim)
    wrap(CursorWrapper, "_executemany", statement, victim)
    wrap(BaseDatabaseWrapper, "_commit", lambda _connection: "COMMIT", victim)
    wrap(KafkaTCPTransport, "write", request, victim)
    wrap(smtplib.SMTP, "send", lambda _server, line: f"SMTP {line[:4] if isinstance(line, str) else 'mail'}", victim)


def main() -> None:
    deed, number, *command = sys.argv[1:]
    time.monotonic = CLOCK  # before anything of Spillway remembers it
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django import setup
    from django.conf import settings
    from django.core.management import execute_from_command_line

    setup()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # who hangs can be asked where
    settings.HEARTBEAT = ""  # a thread that writes by the clock would shift the numbers
    victim = Victim(deed, int(number))
    watch(victim)
    if deed == "count":
        atexit.register(victim.leave)
    execute_from_command_line(["manage.py", *command])


if __name__ == "__main__":
    main()
