"""The demo: its folder, its processes, and the line that it shows while it runs."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TextIO

from django.conf import settings
from django.core.management.base import OutputWrapper
from django.utils import timezone

from config.demo.embedded_kafka import API_VERSION
from config.demo.simulation import Counts, from_elsewhere, read_account, samples_lost
from config.environment.env import BadSetting
from config.flows import flows
from config.processes.commands import program
from config.processes.supervisor import Supervisor, refuse_taken_port, start_platform
from config.processes.worker import Options

# -- The demo's folder ---------------------------------------------------------------------------------------
MB = 1_000_000


@contextmanager
def emptied_folder(port: int, say: Callable[[str], object]) -> Iterator[Path]:
    """`var/demo/<port>`, empty, and nobody else's until the end. Raises BadSetting when it belongs to a demo that runs."""
    folder = Path(settings.BASE_DIR) / "var" / "demo" / str(port)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a+", encoding="utf-8") as lock:
        take(lock, port)
        refuse_taken_port("127.0.0.1", port)
        if folder.exists():
            say(f"Deleting what the last demo left in {shown(folder)} ({size_of(folder) / MB:,.1f} MB).")
            shutil.rmtree(folder)
        folder.mkdir()
        yield folder


def take(lock: TextIO, port: int) -> None:
    """Lock the file until it is closed, by whatever end of this process, and write into it who has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        beside = f"another demo can run beside it: make run PORT={port + 1}"
        raise BadSetting(f"a demo runs on port {port} already ({holder}); {beside}") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} since {timezone.now():%Y-%m-%d %H:%M:%S} UTC")
    lock.flush()


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def shown(folder: Path) -> str:
    """As it is typed in the project's directory."""
    return str(folder.relative_to(settings.BASE_DIR))


# -- The status lines ----------------------------------------------------------------------------------------
def status_line(room: int = 90) -> str:
    """The headlines of all flows on one line; what finds no room is left out."""
    named = [(flow.headline, figure) for flow in flows() for figure in flow.summary()]
    figures = [f"{name} {number:,}" for headline, (name, number) in named if name in headline]
    while len(line := "   ".join(figures)) > room:
        figures.pop()
    return line


def waiting_line() -> str:
    """What is still in progress in any flow, on one line; empty when nothing is."""
    named = [figure for flow in flows() for figure in flow.waiting()]
    return "   ".join(f"{name} {number:,}" for name, number in named if number)


# -- The demo ------------------------------------------------------------------------------------------------
# Of another Kafka, in `.env`: the embedded broker asks nobody who they are.
LOCKS = ("SECURITY_PROTOCOL", "SASL_MECHANISM", "SSL_CAFILE", "SSL_CERTFILE", "SSL_KEYFILE", "SSL_KEY_PASSWORD")
TIMINGS = {"BUFFER_IDLE_SECONDS": "3", "BUFFER_CAP_SECONDS": "15"}
LEAST_SECONDS = 20.0
LEAST_TRAFFIC = 5.0  # seconds behind the first sample, also where the start takes long
FIRST_SAMPLE = 300.0  # seconds it may take to come
DRAIN_SECONDS = 10.0
DRAIN_QUIET, DRAIN_LIMIT = 60.0, 600.0  # seconds without any change, and altogether

Say = Callable[[str], None]


def demo_environment(folder: Path, kafka_port: int) -> dict[str, str]:
    """What the demo's processes see: a database and a broker of their own, and short timings."""
    return {
        "DEMO": "1",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "DATABASE_URL": f"sqlite:///{folder / 'spillway.sqlite3'}",
        "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka_port}",
        # The embedded broker frees a dead member's place after its session.
        "KAFKA_API_VERSION": API_VERSION,
        "KAFKA_TRANSACTIONS": "off",
        **{f"KAFKA_{name}": "" for name in LOCKS},
        "KAFKA_SESSION_TIMEOUT_MS": "2000",
        "KAFKA_TOPIC_PREFIX": "",
        "CELERY_BROKER_URL": "",
        "LOG_FORMAT": "console",
        "METRICS_PORT": "0",  # one port would be everybody's
        "LEDGER_UNKNOWN_STOCK": "create",  # the traffic brings its own opening stock
        **{name: os.environ.get(name, value) for name, value in TIMINGS.items()},
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def seconds_argument(text: str) -> float:
    """How long a demo runs; raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not seconds >= LEAST_SECONDS:  # nan is neither
        raise ArgumentTypeError(f"{text}: at least {LEAST_SECONDS:.0f} seconds; start and end alone take that long")
    return seconds


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, *program(), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        # Ctrl-C ends the traffic, not the command that is counting it.
        start_new_session=True,
    )


def manage(environment: dict[str, str], *arguments: str) -> str:
    """What a command prints; raises BadSetting with its last line when it fails."""
    done = command(environment, *arguments)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BadSetting(f"{arguments[0]}: {lines[-1] if lines else 'failed'}")
    return done.stdout


@dataclass
class Demo:
    """One run: `seconds` None means until Ctrl-C."""

    say: Say
    folder: Path
    environment: dict[str, str]
    port: int
    rate: float
    seconds: float | None
    answers: int = 0  # of the admin, while everything ran
    started: float = 0.0
    metrics_port: int = 0

    @property
    def account_file(self) -> Path:
        """Where the simulation says what it has sent."""
        return self.folder / "account.json"

    def run(self, stop: threading.Event) -> bool:
        """Start, show, drain, verify, stop; returns whether nothing is missing."""
        self.started = time.monotonic()
        with closing(Supervisor(self.folder / "logs", self.environment)) as supervisor:
            self._start(supervisor)
            self._show(supervisor, stop)
            supervisor.end("simulate")
            complete = self._finish(supervisor)
            self.say("Stopping …")
        return complete

    def _start(self, supervisor: Supervisor) -> None:
        kafka = self.environment["KAFKA_BOOTSTRAP_SERVERS"].rpartition(":")[2]
        supervisor.manage("embedded_kafka", "embedded_kafka", "--port", kafka, "--with-parent")
        manage(self.environment, "migrate", "--verbosity", "0")
        manage(self.environment, "demo_user")
        _wait_for_port(int(kafka), supervisor)
        own = start_platform(supervisor, self.port, metrics_port=self.metrics_port)
        account = ["--rate", str(self.rate), "--account", str(self.account_file)]
        supervisor.manage("simulate", "simulate", *account, "--metrics-port", str(own))  # it writes orders itself
        self.say(f"Admin   http://127.0.0.1:{self.port}/admin/   (user admin, password admin; this demo only)")
        self.say(f"Logs    {shown(self.folder)}/logs/")

    def _show(self, supervisor: Supervisor, stop: threading.Event) -> None:
        """Print the status every two seconds until the traffic should end."""
        end = self.started + self.seconds - DRAIN_SECONDS if self.seconds else float("inf")
        least = time.monotonic() + FIRST_SAMPLE
        sent = False
        while not stop.wait(2.0) and time.monotonic() < max(end, least):
            supervisor.watch()
            if not sent and (sent := read_account(self.account_file)[1].total() > 0):
                least = time.monotonic() + LEAST_TRAFFIC
            self.answers += self._admin_answers()
            self._status("--line")

    def _finish(self, supervisor: Supervisor) -> bool:
        self.say("Traffic has stopped; what waits is sent now. Ctrl-C ends at once, without an account.")
        changed = began = time.monotonic()
        waiting = None
        while time.monotonic() < min(changed + DRAIN_QUIET, began + DRAIN_LIMIT):
            supervisor.watch()
            self.answers += self._admin_answers()
            before, waiting = waiting, self._status("--waiting", "" if self.answers else "the admin has not answered")
            if not waiting:
                break
            if waiting != before:
                changed = time.monotonic()
            time.sleep(1.0)
        else:
            self.say(f"Still on its way, and not waited for any longer: {waiting}")
        return self._summary()

    def _status(self, option: str, besides: str = "") -> str:
        """Print one line of `flow_summary` and return it; on a busy machine the database may not answer in time."""
        asked = command(self.environment, "flow_summary", option)
        figures = (asked.stdout if asked.returncode == 0 else "the database does not answer").strip()
        line = "   ".join(filter(None, [figures, besides]))
        if line:
            self.say(f"{time.monotonic() - self.started:5.0f} s   {line}")
        return line

    def _summary(self) -> bool:
        """Print the account; returns whether it proves that everything works and nothing is missing."""
        proof = command(self.environment, "verify")
        begun, sent = read_account(self.account_file)
        arrived = json.loads(manage(self.environment, "flow_summary", "--arrived", "--json"))
        self.say("")
        self.say(f"{'samples sent':24}{sent.total():>8,}")
        if unsure := (begun - sent).total():
            self.say(f"{'sent, nobody said so':24}{unsure:>8,}")
        self.say(f"{'from elsewhere':24}{from_elsewhere(begun, arrived):>8,}")
        self.say(f"{'samples arrived':24}{sum(arrived.values()):>8,}")
        self.say(manage(self.environment, "flow_summary").rstrip())
        self.say(f"{'admin pages answered':24}{self.answers:>8}")
        self.say("")
        self.say((proof.stdout or proof.stderr).rstrip())
        problems = list(self._problems(sent, arrived))
        for line in problems or ["Nothing is missing."]:
            self.say(line)
        return proof.returncode == 0 and not problems

    def _problems(self, sent: Counts, arrived: Counts) -> Iterator[str]:
        """What the account does not prove, one sentence each."""
        if not sent:
            yield "No sample was sent: this account proves nothing."
        yield from samples_lost(sent, arrived)
        if not self.answers:
            yield "The admin did not answer once."

    def _admin_answers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/admin/login/", timeout=20) as page:
                return int(page.status == 200)
        except (OSError, HTTPException):
            return 0


def _wait_for_port(port: int, supervisor: Supervisor, patience: float = 120.0) -> None:
    limit = time.monotonic() + patience
    while time.monotonic() < limit:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise BadSetting(f"the embedded broker did not start: {supervisor.last_line('embedded_kafka')}")


def run_demo(stop: threading.Event, out: OutputWrapper, options: Options) -> bool:
    """One demo run with the options of `run_all`; whether everything added up. Raises BadSetting when it cannot start."""

    def say(line: str) -> None:
        out.write(line)
        out.flush()  # at once, also into a pipe

    with emptied_folder(options["port"], say) as folder:
        environment = demo_environment(folder, free_port())
        port, rate, seconds, metrics_port = (options[name] for name in ("port", "rate", "seconds", "metrics_port"))
        return Demo(say, folder, environment, port, rate, seconds, metrics_port=metrics_port).run(stop)
