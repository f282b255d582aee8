"""A relay is frozen at every line between its claim and its settlement, past its lease, while others finish its work."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.db import connection, connections

from config.database.clock import database_now
from outbox.delivery import overdue
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage
from outbox.verify import checks
from tests.outbox.scripted import Scripted, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = threading.Event()
TRACED = str(Path(overdue.__file__).parent)
LOCKED_OUT = 0.2  # seconds that the others may wait for a lock of the frozen one: then it wakes
Point = tuple[str, int, int]  # file, line, and which time it is reached


@contextmanager
def stopped_at(reached: Callable[[Point], None]) -> Iterator[None]:
    """Tell of every line of delivery that this thread is about to run."""
    times: Counter[tuple[str, int]] = Counter()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            place = (frame.f_code.co_filename, frame.f_lineno)
            times[place] += 1
            reached((*place, times[place]))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def others_finish(memory: Scripted) -> None:
    """Recovery, the decision about what is uncertain, and another worker's round."""
    overdue.rescue(database_now())
    OutboxMessage.objects.filter(state="uncertain").update(available_at=database_now())
    overdue.decide_uncertain(memory)
    deliver(claim(memory, "poll", 10), memory, NEVER)


def in_a_thread(work: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        work()
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def frozen_once(memory: Scripted, at: Point | None) -> list[Point]:
    """Deliver one message, frozen at a point; returns the points that were passed."""
    pk, passed, others = promise(f"order:{at}"[-100:]), [], []
    claimed = claim(memory, "poll", 10)
    # The worker looks at a clock of its own, and that stands still with it.
    OutboxMessage.objects.filter(pk=pk).update(lease_until=database_now() - timedelta(seconds=1))

    def reached(point: Point) -> None:
        passed.append(point)
        if point == at:
            others.append(in_a_thread(lambda: others_finish(memory)))
            others[0].join(LOCKED_OUT)

    with stopped_at(reached):
        deliver(claimed, memory, NEVER)
    for thread in others:
        thread.join()
    others_finish(memory)
    row = message(pk)
    assert (row.state, memory.accepted.count(pk) >= 1) == ("sent", True), at
    assert memory.accepted.count(pk) <= 1 + row.times_uncertain, at
    return passed


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_frozen_at_any_line_nothing_leaves_twice_unmarked(install):
    memory = install(Scripted())
    points = frozen_once(memory, None)
    assert {Path(file).name for file, *_ in points} >= {"deliver.py", "settle.py", "claim.py"}
    for point in points:
        frozen_once(memory, point)
    assert memory.repeats, "nobody was frozen behind an attempt"
    assert [check for check in checks() if not check.ok] == []
