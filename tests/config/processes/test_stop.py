"""Being told to stop: at any moment, also while the event that says so is in somebody's hands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from config.processes.worker import stop_on_signal

# In a process of its own: what is tested for is that it does not hang.
CAUGHT_IN_THE_ACT = """
import os, signal
from config.processes.worker import stop_on_signal
with stop_on_signal() as stop:
    with stop._cond:  # as inside stop.wait(), before and after it sleeps
        os.kill(os.getpid(), signal.{name})
    print("stopped" if stop.wait(20) else "not stopped")
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.processes
def test_a_signal_in_the_middle_of_a_wait_does_not_wait_for_itself(name: str) -> None:
    command = [sys.executable, "-c", CAUGHT_IN_THE_ACT.format(name=name)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "DEBUG": "1"})
    assert result.stdout == "stopped\n", result.stderr


def test_the_first_signal_asks_and_the_second_acts_as_before() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(20)
            assert not came
            os.kill(os.getpid(), signal.SIGTERM)
            assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_of_it_is_left_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        assert any(thread.name == "signals" for thread in threading.enumerate())
    assert not stop.is_set()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert not any(thread.name == "signals" for thread in threading.enumerate())
