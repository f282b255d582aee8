"""python -m tests.crash.replay.victim PLACE command …: a worker that is killed with SIGKILL at one place of a batch.

PLACE is a boundary by name, or a number: so many statements inside the transactions of its chunks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.processes.saboteur import after

# Each is the last thing before the gap.
BOUNDARIES = {
    "pinned": "outbox.replay_batches.preview._insert_items",  # in the transaction, not committed
    "counted": "outbox.replay_batches.preview.pin",  # committed
    "judged": "outbox.replay_batches.preview.judge",  # committed
    "started": "outbox.replay_batches.lifecycle._started",  # in the transaction
    "begun": "outbox.replay_batches.run.lifecycle.begin",  # committed
    "promoted": "outbox.replay_batches.run.lifecycle.promote",  # committed
    "taken back": "outbox.replay_batches.subjects.BatchOfLetters.act",  # in the transaction: letters and effects are written
    "sent again": "outbox.replay_batches.subjects.BatchOfMessages.act",  # in the transaction: the new messages are written
    "settled": "outbox.replay_batches.run.settle_chunk",  # in the transaction: items and counters, too
    "committed": "outbox.replay_batches.run._transact",  # nobody knows
    "proven": "outbox.letters.redelivery._look_after_these",  # letters are closed and committed, the batch has not heard of it
    "verdicts": "outbox.replay_batches.run._count_proofs",  # committed
}
OF_LETTERS = tuple(place for place in BOUNDARIES if place != "sent again")
OF_MESSAGES = tuple(place for place in BOUNDARIES if place not in ("taken back", "proven"))


def main() -> None:
    place, *command = sys.argv[1:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django import setup
    from django.core.management import execute_from_command_line

    setup()
    if place.isdecimal():
        inside(int(place))
    else:
        after(BOUNDARIES[place], lambda: die(place))
    execute_from_command_line(["manage.py", *command])


def inside(number: int) -> None:
    """Die behind the given statement, counted over the chunks: nothing of that chunk is committed."""
    from django.db import connection

    from outbox.replay_batches import run as chunk

    usual, left = chunk._transact, [number]

    def count(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        left[0] -= 1
        if not left[0]:
            die(f"statement {number}: {sql[:60]!r}")
        return result

    def transact(*given: Any) -> int:
        with connection.execute_wrapper(count):
            return usual(*given)

    chunk._transact = transact


def die(place: str) -> None:
    print(f"dies at {place}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
