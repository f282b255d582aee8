"""Operator actions of eight writers, with and without a sealer beside them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import django

from tests.bench.figures import median, ratio
from tests.bench.leg import Plan
from tests.bench.worker import ROOT

WRITERS = 8
SECONDS, TURNS = 2.0, 4  # of one measurement; how many of each in a run
PAUSE = 0.2  # seconds of a sealer that has sealed everything
Writer = subprocess.Popen[str]


def rows(plan: Plan) -> list[dict[str, str]]:
    alone, sealed = [], []
    with writing() as writers:
        measure(writers)  # warms the server
        for _ in range(plan.repeat if plan.quick else TURNS * plan.repeat):  # what disturbs the machine meets both
            alone.append(measure(writers))
            seal_all()
            with sealing():
                sealed.append(measure(writers))
            seal_all()
    return [{
        "writers": str(WRITERS), "actions/s, nobody seals": median(alone), "actions/s, while they are sealed": median(sealed),
        "of it": ratio(sealed, alone),
    }]  # fmt: skip


@contextmanager
def writing() -> Iterator[list[Writer]]:
    """The writers, each a process of its own."""
    command = [sys.executable, "-m", "tests.bench.outbox.seals"]
    writers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(WRITERS)
    ]
    try:
        for writer in writers:
            answer_of(writer)  # it is ready
        yield writers
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def measure(writers: Sequence[Writer]) -> float:
    """Actions a second that all of them record."""
    for writer in writers:
        print(SECONDS, file=writer.stdin, flush=True)
    return sum(float(answer_of(writer)) for writer in writers)


def answer_of(writer: Writer) -> str:
    line = writer.stdout.readline() if writer.stdout else ""
    if not line:
        raise RuntimeError(f"a writer ended with {writer.wait()}")
    return line


@contextmanager
def sealing() -> Iterator[None]:
    """A sealer that rests only when it has caught up, which it must have."""
    stop, caught_up = threading.Event(), threading.Event()
    sealer = threading.Thread(target=_seal, args=(stop, caught_up))
    sealer.start()
    try:
        yield
    finally:
        stop.set()
        sealer.join()
    if not caught_up.is_set():
        raise RuntimeError("the sealer never caught up")


def _seal(stop: threading.Event, caught_up: threading.Event) -> None:
    from django.db import connections

    from config.database.clock import database_now
    from outbox.audit_log.hash_chain import SEALED_AT_ONCE, seal

    while not stop.is_set():
        if seal(database_now()) < SEALED_AT_ONCE:
            caught_up.set()
            stop.wait(PAUSE)
    connections.close_all()


def seal_all() -> None:
    """What is left, and a proof that nothing is; nobody measures while it lasts."""
    from config.database.clock import database_now
    from outbox.audit_log.flow import seal_all as seal_everything
    from outbox.audit_log.models import OperatorAction

    seal_everything(database_now())
    if left := OperatorAction.objects.unsealed().count():
        raise RuntimeError(f"{left} actions have no seal")


def write() -> None:
    """One writer: for each line, which says how long, it answers how many actions a second it has recorded."""
    action(0)
    print("ready", flush=True)
    for line in sys.stdin:
        count, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < float(line):
            count += 1
            action(count)
        print(count / took, flush=True)


def action(number: int) -> None:
    from django.db import transaction

    from config.admin.levers import Operator
    from outbox.audit_log.actions import record

    with transaction.atomic():
        record(
            Operator("bench"), "hold", f"Bucket {number}", reason="bench", subject_type="buffer.bucket", subject_id=number,
            before={"state": "open"}, after={"state": "held"},
        )  # fmt: skip


if __name__ == "__main__":
    django.setup()
    write()
