"""Every worker, beat and the web server under one supervisor: started in order, restarted when they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import connection

from config.database.tables import require_tables
from config.environment.env import BadSetting
from config.flows import flows
from config.processes import guardian
from config.processes.commands import program
from config.processes.worker import wait_for_database
from config.telemetry.logs import log

# -- The supervisor ------------------------------------------------------------------------------------------
LONGEST_PAUSE = 30.0


@dataclass
class Child:
    """One process: its command, how often it died, and when it may be started again."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    deaths: int = 0
    not_before: float = 0.0


@dataclass
class Supervisor:
    """Keeps children alive. Their output goes to `<directory>/<name>.log`. However it ends, they end with it."""

    directory: Path
    environment: Mapping[str, str]
    children: list[Child] = field(default_factory=list)
    _guardian: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a child and remember it; `environment` is its own, beside that of all."""
        child = Child(name, command, environment or {})
        self.children.append(child)
        self._spawn(child)
        return child

    def manage(self, name: str, *arguments: str) -> Child:
        """Start a management command with this Python."""
        return self.start(name, [sys.executable, *program(), *arguments])

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
                    "child_died", name=child.name, code=child.process.returncode, last=self.last_line(child.name)
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
            self._terminate([child])
            self.children.remove(child)
            self._tell_guardian()

    def close(self) -> list[str]:
        """Stop everything, the last started first; returns the names of those that had to be killed."""
        killed = self._terminate(self.children[::-1])
        self.children = []
        if self._guardian:
            self._tell_guardian()
            self._guardian.communicate()
            self._guardian = None
        return killed

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
                env={**os.environ, **self.environment, **child.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the supervisor alone, which then stops the children in order.
                start_new_session=True,
            )
        self._tell_guardian()

    def _tell_guardian(self) -> None:
        """Tell it who is alive: after SIGKILL, a closed terminal or a second Ctrl-C it ends them."""
        if self._guardian is None or self._guardian.poll() is not None:
            command = [sys.executable, "-I", "-S", guardian.__file__]
            nowhere = subprocess.DEVNULL
            self._guardian = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        groups = [child.process.pid for child in self.children if child.process and child.process.returncode is None]
        if pipe := self._guardian.stdin:
            pipe.write(f"{' '.join(map(str, groups))}\n".encode())
            pipe.flush()

    def _terminate(self, children: Sequence[Child]) -> list[str]:
        killed = []
        for child in children:
            process = child.process
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(guardian.PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(child.name)
        return killed


# -- Everything Spillway consists of -------------------------------------------------------------------------
def start_platform(supervisor: Supervisor, port: int, host: str = "127.0.0.1", metrics_port: int = 0) -> int:
    """Start everything against the database and the broker that the environment names.

    The workers and beat serve /metrics on `metrics_port` and the ports behind it, in the order of their start; 0: nowhere.
    Returns the next port, or 0.
    """
    commands = [[worker.command, *worker.arguments] for flow in flows() for worker in flow.workers()]
    commands += [["replay_topic", "--pending"], ["replay_letters"], ["notify_people"]]
    ports = [metrics_port and metrics_port + number for number in range(len(commands) + 1)]
    refuse_taken_port(host, port)
    for own in filter(None, ports):
        refuse_taken_port(settings.METRICS_HOST, own, "--metrics-port")
    for command, own in zip(commands, ports, strict=False):
        # Always said: METRICS_PORT of the environment would be the same for all.
        supervisor.manage(command[0], *command, "--metrics-port", str(own))
        if own:
            log.info("metrics_served", name=command[0], port=own)
    beat = {"CELERY_METRICS_PORT": str(ports[-1])} if metrics_port else {}
    supervisor.start("beat", [sys.executable, "-m", "celery", "-A", "config", "beat", "--loglevel", "WARNING"], beat)
    if beat:
        log.info("metrics_served", name="beat", port=ports[-1])
    supervisor.start(
        "web",
        [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", f"{host}:{port}", "--workers", "1",
         "--threads", "4", "--access-logfile", "/dev/null", "--no-control-socket",
         # Of its workers too, while they start: on a busy machine that takes longer than its 30 seconds.
         "--timeout", "120"],
    )  # fmt: skip
    return metrics_port and metrics_port + len(ports)


def refuse_taken_port(host: str, port: int, option: str = "--port") -> None:
    """Raise one clear line: the supervisor would restart a process without its port for ever."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise BadSetting(f"{option} {port}: {host}:{port} cannot be used: {reason}") from error


def run_platform(stop: threading.Event, port: int, metrics_port: int) -> None:
    """Start everything, keep it alive until `stop`, end it in reverse order."""
    wait_for_database(stop)
    require_tables()
    connection.close()  # the children have sessions of their own
    supervisor = Supervisor(settings.BASE_DIR / "var" / "logs", {})
    try:
        start_platform(supervisor, port, metrics_port=metrics_port)
        supervisor.run(stop)
    finally:
        supervisor.close()
