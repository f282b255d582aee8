"""A supervisor and its children, real processes: however the supervisor ends, nothing of it runs on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.processes import guardian
from config.processes.supervisor import Supervisor
from tests.tree import ROOT

pytestmark = pytest.mark.processes

# Says that it runs, and holds the connection as long as it does.
CHILD = """
import socket, sys, signal
signal.signal(signal.SIGTERM, {on_sigterm})
place = socket.create_connection(("127.0.0.1", {port}))
place.sendall(b"!")
place.recv(1)
"""
SUPERVISOR = """
import sys, threading
from pathlib import Path
from config.processes.worker import stop_on_signal
from config.processes.supervisor import Supervisor
supervisor = Supervisor(Path(sys.argv[1]), {})
with stop_on_signal() as stop:
    for number in range(2):
        supervisor.start(str(number), [sys.executable, "-c", sys.argv[2]])
    stop.wait()
    print("stopping", flush=True)
    threading.Event().wait()
"""

NOBODY = 2**30  # no number of a process is as large

Meet = Callable[[], socket.socket]


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def meet(door: socket.socket) -> Iterator[Meet]:
    """meet(): the next child that runs; its connection ends when it does."""
    met = []

    def accept() -> socket.socket:
        connection, _ = door.accept()
        met.append(connection)
        connection.settimeout(60)
        assert connection.recv(1) == b"!"
        return connection

    yield accept
    for connection in met:
        connection.close()


def child_of(door: socket.socket, on_sigterm: str = "signal.SIG_DFL") -> str:
    return CHILD.format(port=door.getsockname()[1], on_sigterm=on_sigterm)


@pytest.mark.parametrize("signals", [["SIGKILL"], ["SIGHUP"], ["SIGTERM", "SIGTERM"], ["SIGINT", "SIGINT"]])
def test_children_end_with_a_supervisor_that_cannot_end_them(
    signals: list[str], door: socket.socket, meet: Meet, tmp_path: Path
) -> None:
    if signal.getsignal(getattr(signal, signals[0])) is signal.SIG_IGN:
        pytest.skip(f"{signals[0]} is ignored here, as behind nohup")
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path), child_of(door)]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "DEBUG": "1"}, **quiet) as supervisor:
        children = [meet(), meet()]
        for number, name in enumerate(signals):
            if number:
                assert supervisor.stdout.readline() == b"stopping\n"
            supervisor.send_signal(getattr(signal, name))
        assert supervisor.wait(60) != 0
    assert [child.recv(1) for child in children] == [b"", b""]


def test_closing_ends_children_and_guardian(door: socket.socket, meet: Meet, tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, {})
    child = supervisor.start("one", [sys.executable, "-c", child_of(door)])
    connection = meet()
    watching = supervisor._guardian
    assert supervisor.close() == []
    assert connection.recv(1) == b""
    assert (child.process.returncode, watching.returncode) == (-signal.SIGTERM, 0)


def test_the_guardian_is_told_who_is_alive(door: socket.socket, meet: Meet, tmp_path: Path) -> None:
    """A child that ended may have left its number to somebody else."""
    supervisor = Supervisor(tmp_path, {})
    try:
        for name in ("ended", "dead", "alive"):
            supervisor.start(name, [sys.executable, "-c", child_of(door)])
        met = [meet(), meet(), meet()]
        ended, dead, alive = (child.process for child in supervisor.children)
        supervisor.end("ended")
        dead.kill()
        dead.wait()
        assert supervisor.watch() == ["dead"]
        met.append(meet())
        told = [child.process.pid for child in supervisor.children]
        assert told[1] == alive.pid
        assert not {ended.pid, dead.pid} & set(told)
        supervisor._guardian.kill()  # nobody does, and then there is another
        supervisor._guardian.wait()
        supervisor.end("alive")
        assert supervisor._guardian.poll() is None
    finally:
        supervisor.close()


def test_the_guardian_kills_what_does_not_stop(door: socket.socket, meet: Meet) -> None:
    command = [sys.executable, "-c", child_of(door, on_sigterm="signal.SIG_IGN")]
    with subprocess.Popen(command, start_new_session=True) as child:
        meet()
        guardian.end([child.pid], patience=0.01)
        assert child.wait(60) == -signal.SIGKILL


def test_the_guardian_asks_before_it_kills(door: socket.socket, meet: Meet) -> None:
    command = [sys.executable, "-c", child_of(door, on_sigterm="lambda *_: sys.exit(3)")]
    with subprocess.Popen(command, start_new_session=True) as child:
        meet()
        with subprocess.Popen([sys.executable, guardian.__file__], stdin=subprocess.PIPE) as watching:
            watching.stdin.write(f"{NOBODY}\n{child.pid}\n".encode())
            watching.stdin.close()
            assert child.wait(60) == 3
            assert watching.wait(60) == 0
