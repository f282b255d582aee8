"""Every worker, beat and the web server under one supervisor: started in order, restarted when they die, stopped in reverse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.telemetry.logs import log

PATIENCE = 20.0
LONGEST_PAUSE = 30.0


@dataclass
class Child:
    """One process: its command, how often it died, and when it may be started again."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    not_before: float = 0.0


@dataclass
class Supervisor:
    """Keeps children alive. Their output goes to `<directory>/<name>.log`."""

    directory: Path
    environment: Mapping[str, str]
    children: list[Child] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str]) -> Child:
        """Start a child and remember it."""
        child = Child(name, command)
        self.children.append(child)
        self._spawn(child)
        return child

    def manage(self, name: str, *arguments: str) -> Child:
        """Start `manage.py …` with this Python."""
        return self.start(name, [sys.executable, "manage.py", *arguments])

    def watch(self) -> list[str]:
        """Restart what died, after a longer pause each time; returns the names of what died."""
        dead = []
        for child in self.children:
            if child.process is None or child.process.poll() is None:
                continue
            dead.append(child.name)
            if child.not_before == 0.0:
                child.deaths += 1
                child.not_before = time.monotonic() + min(2.0 ** (child.deaths - 1) - 1, LONGEST_PAUSE)
                log.warning(
                    "child_died",
                    name=child.name,
                    code=child.process.returncode,
                    last=self.last_line(child.name),
                )
            if time.monotonic() >= child.not_before:
                self._spawn(child)
        return dead

    def run(self, stop: threading.Event) -> None:
        """Watch until told to stop."""
        while not stop.wait(0.5):
            self.watch()

    def end(self, name: str) -> None:
        """Stop one child for good."""
        for child in [child for child in self.children if child.name == name]:
            self.children.remove(child)
            self._terminate([child])

    def close(self) -> list[str]:
        """Stop everything, the last started first; returns the names of those that had to be killed."""
        children, self.children = self.children[::-1], []
        return self._terminate(children)

    def last_line(self, name: str) -> str:
        """The last line of a child's output."""
        try:
            lines = (self.directory / f"{name}.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def _spawn(self, child: Child) -> None:
        child.not_before = 0.0
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{child.name}.log").open("ab") as output:
            child.process = subprocess.Popen(
                child.command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the supervisor alone, which then stops the children in order.
                start_new_session=True,
            )

    def _terminate(self, children: Sequence[Child]) -> list[str]:
        killed = []
        for child in children:
            process = child.process
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(child.name)
        return killed
