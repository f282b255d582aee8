"""Freezes this thread at a line, as SIGSTOP does, while others go on; what they wait for keeps them no longer than it does in life."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.db import connections

LOCKED_OUT = 0.2  # seconds that the others may wait for a lock of the frozen one: then it wakes
Point = tuple[str, int, int]  # file, line, and which time it is reached


@contextmanager
def stopped_at(reached: Callable[[Point], None], traced: Sequence[str]) -> Iterator[None]:
    """Tell of every line that this thread is about to run in files whose path begins with one of these."""
    times: Counter[tuple[str, int]] = Counter()
    beginnings = tuple(traced)

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(beginnings):
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


def frozen_at(
    at: Point | None,
    work: Callable[[], object],
    others: Callable[[], object],
    traced: Sequence[str],
    patience: float = LOCKED_OUT,
) -> list[Point]:
    """Do `work`, frozen at a point while `others` do theirs on connections of their own; returns the points that were passed."""
    passed: list[Point] = []
    threads: list[threading.Thread] = []

    def reached(point: Point) -> None:
        passed.append(point)
        if point == at:
            threads.append(in_a_thread(others))
            threads[0].join(patience)

    with stopped_at(reached, traced):
        work()
    for thread in threads:
        thread.join()
    return passed


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        work()
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
