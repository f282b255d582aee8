"""Spillway as processes: manage.py commands started, killed, frozen and asked to stop, with their logs and metrics."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.prepared import PythonProcess, run_python

ROOT = Path(__file__).resolve().parents[2]
METRIC = re.compile(r"^spillway_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
PATIENCE = 30.0

Sample = tuple[str, Mapping[str, str], float]  # name without prefix, labels, value


class Worker:
    """One process of Spillway."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.port = port

    @property
    def text(self) -> str:
        """Everything it has written."""
        return self.log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> int:
        return self._signal(signal.SIGKILL)

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM, as soon as it has taken over what that does; its exit code.

        Before that the interpreter itself ends, with -15, as any program's: beside other work a start takes seconds.
        """
        deadline = time.monotonic() + seconds
        while self.port and self.alive and not self._catches(signal.SIGTERM) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._signal(signal.SIGTERM, seconds)

    def _catches(self, number: int) -> bool:
        """Whether the process has a handler of its own for a signal."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        mask = re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
        return bool(mask and int(mask[1], 16) >> (number - 1) & 1)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def frozen(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait until it has ended by itself; its exit code."""
        return self.process.wait(seconds)

    def _signal(self, number: int, seconds: float = PATIENCE) -> int:
        if self.alive:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def metrics(self) -> list[Sample]:
        """What it counts about itself; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as page:
                text = page.read().decode()
        except (urllib.error.URLError, OSError):
            return []
        return [(name, dict(LABEL.findall(labels or "")), float(value)) for name, labels, value in METRIC.findall(text)]

    def count(self, name: str, **labels: str) -> float:
        """The sum of a counter over all labels that are not given."""
        return sum(v for n, at, v in self.metrics() if n == name and labels.items() <= at.items())


class Platform:
    """Processes that share one environment; leaving the `with` block ends all of them."""

    def __init__(self, directory: Path, environment: Mapping[str, str], root: Path = ROOT) -> None:
        """`root` is where the code is."""
        self.directory = directory
        self.root = root
        self.environment = {**os.environ, "LOG_FORMAT": "json", "SECRET_KEY": "not-a-secret" * 5, **environment}
        self.workers: list[Worker] = []
        self.lives: Counter[str] = Counter()

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with ExitStack() as ends:
            for worker in self.workers:
                ends.callback(worker.kill)

    def start(self, command: str, *arguments: str, name: str = "", **environment: str) -> Worker:
        """A worker command with metrics on a port of its own; `environment` adds to the shared one."""
        return self.launch(["manage.py", command, *arguments], name or command, environment)

    def launch(self, program: list[str], name: str, environment: Mapping[str, str]) -> Worker:
        port = free_port()
        return self.run([*program, "--metrics-port", str(port)], name, environment, port)

    def run(self, program: list[str], name: str, environment: Mapping[str, str], port: int = 0) -> Worker:
        """Any program of Python's; `port` is where it shows metrics."""
        self.lives[name] += 1
        log = self.directory / f"{name}.{self.lives[name]}.log"
        with log.open("wb") as output:
            process = PythonProcess(
                [sys.executable, *program], cwd=self.root, stdin=subprocess.DEVNULL,
                env={**self.environment, **environment}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        worker = Worker(name, process, log, port)
        self.workers.append(worker)
        return worker

    def manage(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = run_python("manage.py", *arguments, env={**self.environment, **environment}, cwd=self.root)
        if check and done.returncode:
            raise AssertionError(f"{arguments[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
        return done


def free_port() -> int:
    """Below those that Linux gives to clients: one of these would be taken while its server is away."""
    while True:
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", random.SystemRandom().randrange(10_000, 20_000))) as probe,
        ):
            return int(probe.getsockname()[1])


def total(samples: list[Sample], name: str, **labels: Any) -> float:
    return sum(value for found, at, value in samples if found == name and labels.items() <= at.items())
