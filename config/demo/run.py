"""`make run`: the whole platform on this machine, with sample traffic, a live status and a verified end."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from config.environment.env import BadSetting
from config.processes.platform import start_platform
from config.processes.supervisor import Supervisor

DIRECTORY = Path(settings.BASE_DIR) / "var" / "demo"
TIMINGS = {"BUFFER_IDLE_SECONDS": "3", "BUFFER_CAP_SECONDS": "15"}
DRAIN_SECONDS = 10.0
DRAIN_LIMIT = 60.0

Say = Callable[[str], None]


def demo_environment(kafka_port: int) -> dict[str, str]:
    """What the demo's processes see: a database and a broker of their own, and short timings."""
    return {
        "DEMO": "1",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DATABASE_URL": f"sqlite:///{DIRECTORY / 'spillway.sqlite3'}",
        "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka_port}",
        # The embedded broker knows the protocol up to here, and frees a dead member's place after its session.
        "KAFKA_API_VERSION": "2.3",
        "KAFKA_SESSION_TIMEOUT_MS": "2000",
        "KAFKA_TOPIC_PREFIX": "",
        "CELERY_BROKER_URL": "",
        "LOG_FORMAT": "console",
        "LEDGER_UNKNOWN_STOCK": "create",  # the traffic brings its own opening stock
        **{name: os.environ.get(name, value) for name, value in TIMINGS.items()},
    }


def prepare() -> dict[str, str]:
    """A fresh directory and database, and the environment of everything that follows."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    return demo_environment(free_port())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def manage(environment: dict[str, str], *arguments: str) -> str:
    """Run one command to its end; raises BadSetting with its last line when it fails."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BadSetting(f"{arguments[0]}: {lines[-1] if lines else 'failed'}")
    return done.stdout


@dataclass
class Demo:
    """One run: `seconds` None means until Ctrl-C."""

    say: Say
    environment: dict[str, str]
    port: int
    rate: float
    seconds: float | None
    answers: int = 0  # of the admin, while everything ran
    sent: int = 0  # by the simulation, acknowledged by the broker
    started: float = 0.0

    def run(self, stop: threading.Event) -> bool:
        """Start, show, drain, verify, stop; returns whether nothing is missing."""
        supervisor = Supervisor(DIRECTORY / "logs", self.environment)
        self.started = time.monotonic()
        try:
            self._start(supervisor)
            self._show(supervisor, stop)
            supervisor.end("simulate")
            self.sent = _leading_number(supervisor.last_line("simulate"))
            return self._finish(supervisor) if self.seconds else True
        finally:
            self.say("Stopping …")
            supervisor.close()

    def _start(self, supervisor: Supervisor) -> None:
        kafka = self.environment["KAFKA_BOOTSTRAP_SERVERS"].rpartition(":")[2]
        supervisor.manage("embedded_kafka", "embedded_kafka", "--port", kafka, "--with-parent")
        manage(self.environment, "migrate", "--verbosity", "0")
        manage(self.environment, "demo_user")
        _wait_for_port(int(kafka), supervisor)
        start_platform(supervisor, self.port)
        supervisor.manage("simulate", "simulate", "--rate", str(self.rate))
        self.say(f"Admin   http://127.0.0.1:{self.port}/admin/   (user admin, password admin; this demo only)")
        self.say(f"Logs    {DIRECTORY.relative_to(settings.BASE_DIR)}/logs/")

    def _show(self, supervisor: Supervisor, stop: threading.Event) -> None:
        """Print the status every two seconds until the traffic should end."""
        end = self.started + self.seconds - DRAIN_SECONDS if self.seconds else float("inf")
        while not stop.wait(2.0) and time.monotonic() < end:
            supervisor.watch()
            self._status()

    def _finish(self, supervisor: Supervisor) -> bool:
        self.say("Traffic has stopped; what waits is sent now.")
        limit = time.monotonic() + DRAIN_LIMIT
        while time.monotonic() < limit:
            supervisor.watch()
            if manage(self.environment, "is_drained").strip() == "yes":
                break
            self._status()
            time.sleep(1.0)
        return self._summary()

    def _status(self) -> None:
        self.answers += self._admin_answers()
        figures = manage(self.environment, "flow_summary", "--line").strip()
        self.say(f"{time.monotonic() - self.started:5.0f} s   {figures}")

    def _summary(self) -> bool:
        done = subprocess.run(
            [sys.executable, "manage.py", "verify"],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        arrived = _leading_number(manage(self.environment, "flow_summary", "--arrived"))
        self.say("")
        self.say(f"{'samples sent':24}{self.sent:>8,}")
        self.say(f"{'samples arrived':24}{arrived:>8,}")
        self.say(manage(self.environment, "flow_summary").rstrip())
        self.say(f"{'admin pages answered':24}{self.answers:>8}")
        self.say("")
        self.say(done.stdout.rstrip())
        self.say(
            "Nothing is missing." if arrived == self.sent else f"{self.sent} samples were sent and {arrived} arrived."
        )
        return done.returncode == 0 and arrived == self.sent and self.answers > 0

    def _admin_answers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/admin/login/", timeout=5) as page:
                return int(page.status == 200)
        except (urllib.error.URLError, OSError):
            return 0


def _leading_number(text: str) -> int:
    words = text.split()
    return int(words[0].replace(",", "")) if words and words[0].replace(",", "").isdigit() else 0


def _wait_for_port(port: int, supervisor: Supervisor, patience: float = 30.0) -> None:
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise BadSetting(f"the embedded broker did not start: {supervisor.last_line('embedded_kafka')}")


def run_demo(stop: threading.Event, say: Say, options: dict[str, Any]) -> bool:
    """One demo run with the options of `run_all`; whether everything added up."""
    return Demo(say, prepare(), options["port"], options["rate"], options["seconds"]).run(stop)
