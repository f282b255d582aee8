"""python -m tests.processes.saboteur POINT DEED command …: a worker to which something happens at one point.

DEED is `kill` (SIGKILL), `freeze` (SIGSTOP, until somebody sends SIGCONT) or `lose`: the transaction is
committed, but its answer never arrives.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

# Each is the last thing before the gap in which the action is done.
POINTS = {
    "written": "outbox.bookkeeping.watermarks.Watermarks.advance",  # the batch is in the transaction, not committed
    "stored": "config.kafka.consumer.writer.Writer._transact",  # committed; Kafka's offsets are not
    "rebuilt": "buffer.ingest.rebuild._store",  # a part of the topic is stored and committed, the rest unread
    "taken": "buffer.flush.claim._claim_events",  # the claim is in the transaction, not committed
    "claimed": "buffer.flush.flusher.claim",  # committed; nothing was sent
    "sent": "config.kafka.producer.Producer.send_all",  # the broker has acknowledged; nobody knows
    "settled": "buffer.flush.flusher.settle",  # in the transaction, not committed
    # The ledger's transaction, statement by statement; nothing of it is committed.
    "recorded": "buffer.ledger.handler.insert_movements",
    "adjusted": "buffer.ledger.handler.adjust_stocks",
    "buried": "buffer.ledger.handler.bury",
    "counted": "outbox.bookkeeping.counters.add",
    # The intake's transaction, statement by statement; nothing of it is committed.
    "promised": "outbox.intake.handler.Intake._insert",
    "refused": "outbox.intake.handler.bury",
    "told": "outbox.intake.refusals.tell",
    # The throttler's transaction with Kafka, call by call.
    "decided": "throttler.worker.round.OwnerRound.decide",
    "rows written": "throttler.engine.row_writer.RowHandler.write",  # in the transaction, not committed
    "overflow stored": "config.kafka.consumer.writer.Writer._transact",
    "records sent": "config.kafka.transactional_producer.TransactionalProducer._records",  # and acknowledged
    "offsets sent": "config.kafka.transactional_producer.TransactionalProducer._offsets",
    "transaction begun": "config.kafka.transactional_producer.TransactionalProducer.begin",
    "records given": "throttler.engine.output_transaction.OutputTransaction._send_messages",  # to the client
    "records asked": "config.kafka.producer_internals.wake",  # or about to be; so is the next
    "offsets asked": "config.kafka.producer_internals.send_offsets",
    "commit sent": "config.kafka.producer_internals.begin_commit",  # or about to be
    "transaction committed": "throttler.worker.snapshot.Snapshot.committed",
    "offsets read": "config.kafka.reader.ReadConnection.committed",  # the changelog is not
    "partition restored": "throttler.lanes.restore_thread.restored",  # the first of several
    "page read": "throttler.engine.drain.PageReader._ask",  # the owner has not heard
    "mirror given": "throttler.worker.database_sync.DatabaseSync._snapshots",  # nothing of it is in the database
}


def main() -> None:
    point, action, *command = sys.argv[1:]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django import setup
    from django.core.management import execute_from_command_line

    setup()
    after(POINTS[point], {"kill": kill, "freeze": freeze, "lose": lose}[action])
    execute_from_command_line(["manage.py", *command])


def after(path: str, action: Callable[[], None]) -> None:
    """Do the action once, after the first call that really did something."""
    owner, name = _find(path)
    original = getattr(owner, name)
    pending = [action]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if pending and did_something(name, result):
            pending.pop()()
        return result

    setattr(owner, name, wrapped)


def did_something(name: str, result: Any) -> bool:
    if name == "claim":
        return bool(result.batches)
    return result != [] or name == "bury"  # which is called for each batch, with letters or without


def _find(path: str) -> tuple[Any, str]:
    """The object that holds the last name of a dotted path."""
    *parents, name = path.split(".")
    for length in range(len(parents), 0, -1):
        try:
            owner: Any = import_module(".".join(parents[:length]))
        except ModuleNotFoundError:
            continue
        for parent in parents[length:]:
            owner = getattr(owner, parent)
        return owner, name
    raise LookupError(path)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    # To this thread: one that goes to the process may be taken by another, and this one would run on for a while.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def lose() -> None:
    """Let the next commit of this thread succeed on the server and fail here."""
    from django.db import OperationalError
    from django.db.backends.base.base import BaseDatabaseWrapper

    thread = threading.get_ident()
    original = BaseDatabaseWrapper._commit

    def commit(self: Any) -> Any:
        result = original(self)
        if threading.get_ident() == thread:
            BaseDatabaseWrapper._commit = original
            raise OperationalError("the connection was lost before the answer came")
        return result

    BaseDatabaseWrapper._commit = commit


if __name__ == "__main__":
    main()
