"""`make run` as a person meets it: a second one, Ctrl-C, a kill."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.crash.platform import ROOT, free_port
from tests.crash.wire import wait_for

pytest.importorskip("confluent_kafka", reason="the embedded broker needs confluent-kafka")
FEWER = "tests.processes.one_flow"
TRAFFIC = re.compile(r"stock movements [1-9]")


class Run:
    """One demo and what it says."""

    def __init__(self, port: int, settings: str) -> None:
        self.port, self.folder, self.text = port, ROOT / "var" / "demo" / str(port), ""
        command = [sys.executable, "manage.py", "run_all", "--demo", "--with-parent", "--port", str(port)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": settings},
        )  # fmt: skip

    def read_until(self, pattern: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line
            if re.search(pattern, line):
                return
        raise AssertionError(f"no {pattern!r} in {self.text}")

    def end(self) -> int:
        self.text += self.process.communicate(timeout=120)[0]
        return self.process.returncode

    @property
    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def demo(db: None) -> Iterator[Callable[..., Run]]:
    """demo(port, settings): a run that has been started; nothing of it is left afterwards."""
    if connection.vendor != "sqlite":
        pytest.skip("a demo brings its own database")
    runs = []

    def start(port: int, settings: str = "config.settings") -> Run:
        runs.append(Run(port, settings))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.communicate()
        wait_for(lambda run=run: not run.answers, 60, "the port to be free")
        shutil.rmtree(run.folder, ignore_errors=True)
        run.folder.with_suffix(".lock").unlink(missing_ok=True)


def test_a_second_run_leaves_the_first_alone_and_ctrl_c_gives_its_account(demo: Callable[..., Run]) -> None:
    first = demo(free_port())
    first.read_until(TRAFFIC.pattern)
    second = demo(first.port)
    assert second.end() == 1
    assert f"port {first.port} already (process {first.process.pid} since" in second.text
    assert (first.folder / "spillway.sqlite3").exists()
    # A terminal sends it to the whole group, also to the command that counts at this moment.
    os.killpg(first.process.pid, signal.SIGINT)
    assert first.end() == 0, first.text
    assert "samples sent" in first.text
    assert "Everything adds up.\nNothing is missing.\nStopping" in first.text
    assert max(len(line) for line in first.text.splitlines() if TRAFFIC.search(line)) <= 100


def test_a_killed_run_leaves_nobody_at_its_port_and_the_next_one_starts(demo: Callable[..., Run]) -> None:
    first = demo(free_port(), FEWER)
    first.read_until("^Admin")
    wait_for(lambda: first.answers, 60, "the web server")
    first.process.kill()
    first.end()
    wait_for(lambda: not first.answers, 60, "the port to be free")
    second = demo(first.port, FEWER)
    second.read_until("^Deleting what the last demo left")
    second.read_until("^Admin")
