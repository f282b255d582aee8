"""Being told to stop: at any moment, also while the event that says so is in somebody's hands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
from django.conf import settings
from django.core.management import CommandError, get_commands, load_command_class

from config.kafka.client import KafkaError
from config.processes import worker
from config.processes.worker import WorkerCommand, stop_on_signal

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


# As a driver that waits for a server: neither returns for a signal, nor lets a handler run.
STUCK = """
import ctypes, os, signal, threading
from config.processes.worker import stop_on_signal
with stop_on_signal(ends_within=0.2):
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM]).start()
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="where a lock of zeros is a lock")
def test_a_process_that_a_server_keeps_ends_without_it() -> None:
    command = [sys.executable, "-c", STUCK]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "DEBUG": "1"})
    assert (result.returncode, "ended_without_waiting" in result.stdout + result.stderr) == (0, True), result


WORKERS = sorted(
    name for name, app in get_commands().items()
    if app in settings.INSTALLED_APPS and isinstance(load_command_class(app, name), WorkerCommand)
)  # fmt: skip


@pytest.mark.parametrize("name", WORKERS)
def test_each_worker_is_cut_off_but_from_a_call_that_would_happen_twice(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only who ends others waits for them."""
    command = load_command_class(get_commands()[name], name)
    if name == "run_all":
        assert command.ends_within is None
        return
    cut = threading.Event()
    monkeypatch.setattr(worker.os, "_exit", lambda _code: cut.set())
    monkeypatch.setattr(type(command), "ends_within", command.ends_within and 0.02, raising=False)

    def work(stop: threading.Event, _options: object) -> None:
        with worker.awaited_at_the_end(0.1):
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(20)
            assert not cut.wait(0.06), "in the middle of a call"
            assert cut.wait(20), "a call has an end"

    monkeypatch.setattr(command, "_prepare", lambda *_: None)
    monkeypatch.setattr(command, "reports", lambda _: False)
    monkeypatch.setattr(command, "work", work)
    command.handle()


@pytest.mark.parametrize("told", [True, False])
def test_only_who_is_not_told_to_stop_complains_of_a_broker_that_is_away(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = load_command_class("outbox", "relay_outbox")

    def work(stop: threading.Event, _options: object) -> None:
        if told:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(20)
        stop.set()  # as the part of a worker that fails does for the others
        raise KafkaError("nobody answers")

    monkeypatch.setattr(command, "_prepare", lambda *_: None)
    monkeypatch.setattr(command, "reports", lambda _: False)
    monkeypatch.setattr(command, "work", work)
    with nullcontext() if told else pytest.raises(CommandError, match="KAFKA_BOOTSTRAP_SERVERS=.*nobody answers"):
        command.handle()
