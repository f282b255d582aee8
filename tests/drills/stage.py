"""Where a drill takes place: Spillway as processes on a database and topics of their own, watched by a Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.platform import Platform, Worker, free_port
from tests.crash.run import directory, staged
from tests.crash.wire import wait_for
from tests.drills.prometheus import RULES, SECONDS, Prometheus, hurried, installed
from tests.notifications.smtp_sink import Sink
from tests.processes.web import PLAIN, Site

SETTINGS = {
    **PLAIN, "DJANGO_SETTINGS_MODULE": "config.settings", "LEDGER_UNKNOWN_STOCK": "create",
    "KAFKA_SESSION_TIMEOUT_MS": "6000", "CELERY_BROKER_URL": "",
}  # fmt: skip
BEAT = ["-m", "celery", "-A", "config", "beat", "--loglevel", "WARNING"]
LEAST = 5  # seconds between two scrapes, and for one: on a busy machine web needs more than one
CALM = 15.0  # seconds for which an alert must be away
START = 180.0  # seconds until every process is scraped


@dataclass(frozen=True)
class Plan:
    """On which servers, and how: `quick` divides what the rules wait, `minutes` are those of healthy traffic."""

    url: str
    servers: str
    quick: int = 1
    minutes: float = 5.0
    logs: Path | None = None


class Drill:
    """What one drill says of itself: `fail` stages the failure, `mend` follows the runbook of its alerts."""

    alerts: tuple[str, ...] = ()  # all have to fire and to end, by the runbook of the first; empty: none may fire
    watched = True  # by a Prometheus
    own_nodes = False  # instead of a database on the server that is named
    staged: str  # one line for --list
    workers: tuple[tuple[str, ...], ...] = (("relay_outbox",),)
    flow = "notifications"  # whose sample traffic; empty: of every flow
    settings: dict[str, str] = {}
    alone: dict[str, dict[str, str]] = {}  # what is set for one command only

    def refusal(self, plan: Plan) -> str:
        """Why it cannot be run on these servers; empty: it can."""
        return ""

    def run(self, plan: Plan, say: Callable[[str], None]) -> bool:
        """The whole drill; whether it passed."""
        return run(self, plan, say)

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        """What of its own it needs beside Spillway; it may change `stage.environment`."""
        yield

    def fail(self, stage: Stage) -> None:
        raise NotImplementedError

    def mend(self, stage: Stage) -> None:
        raise NotImplementedError


class AgedRows(Drill):
    """Its failure is as old as its alert asks for: rows are aged instead of waited for."""

    def refusal(self, plan: Plan) -> str:
        return "SQLite has no INTERVAL" if plan.url.startswith("sqlite") else ""


@dataclass
class Stage:
    """What a drill has in its hands."""

    plan: Plan
    platform: Platform
    sink: Sink
    say: Callable[[str], None]
    mail_answers: bool = True
    alone: dict[str, dict[str, str]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    living: dict[str, Worker] = field(default_factory=dict)
    site: Site = field(default_factory=Site)

    @property
    def environment(self) -> dict[str, str]:
        return self.platform.environment

    def close_mail_server(self) -> None:
        """Nobody listens on its port any more; of one that is closed nothing more happens."""
        if self.mail_answers:
            self.mail_answers = False
            self.sink.__exit__()

    def open_mail_server(self) -> None:
        """The same port, with nothing accepted so far."""
        self.sink = Sink(self.sink.port).__enter__()
        self.mail_answers = True

    def start_web(self) -> None:
        """Web, or web again at its address."""
        self.living["web"] = self.platform.run(self.site.program, "web", self.alone.get("web", {}), self.site.port)

    def start(self, *command: str) -> None:
        """Start a worker, or start it again where it stood: Prometheus knows its port."""
        name = command[0]
        port = self.ports.setdefault(name, free_port())
        if name == "beat":
            program, environment = BEAT, {"CELERY_METRICS_PORT": str(port)}
        else:
            program, environment = ["manage.py", *command, "--metrics-port", str(port)], {}
        self.living[name] = self.platform.run(program, name, environment | self.alone.get(name, {}), port)

    def start_again(self, name: str) -> None:
        """As a person does it."""
        self.say("$ celery -A config beat" if name == "beat" else f"$ python manage.py {name}")
        self.start(name)

    def first_mail(self, seconds: float = 60) -> None:
        wait_for(lambda: self.sink.accepted, seconds, "the first mail")

    def first_order(self) -> None:
        wait_for(lambda: self.living["ingest_events"].count("ingest_records_total"), 60, "the first order")

    def manage(self, *arguments: str) -> str:
        """Run a command as the runbook says, shown as a person would type it; what it printed."""
        shown = [f'"{word}"' if " " in word else word for word in arguments]
        self.say(f"$ python manage.py {' '.join(shown)}")
        done = self.platform.manage(*arguments)
        lines = done.stdout.strip().splitlines()
        for line in lines[:3] + (["…"] if len(lines) > 4 else []) + lines[3:][-1:]:
            self.say(f"  {line[:150]}")
        return done.stdout

    def doctor(self, **environment: str) -> None:
        """What `doctor` complains of: it ends with 1 while something is wrong, which is why it is asked."""
        self.say("$ python manage.py doctor")
        for line in self.platform.manage("doctor", check=False, **environment).stdout.splitlines():
            if line.startswith("FAIL"):
                self.say(f"  {line[:150]}")


def run(drill: Drill, plan: Plan, say: Callable[[str], None]) -> bool:
    """Everything from an empty database to the verdict; nothing is left behind."""
    prefix = f"drill_{os.getpid()}."
    with ExitStack() as ends:
        place = ends.enter_context(directory(None))
        environment = {
            **SETTINGS, **drill.settings, "KAFKA_BOOTSTRAP_SERVERS": plan.servers, "KAFKA_TOPIC_PREFIX": prefix,
        }  # fmt: skip
        sink = Sink().__enter__()
        ends.callback(lambda: delete_topics(plan.servers, prefix))
        say("a database and topics of its own")
        platform = ends.enter_context(staged(plan.url, plan.logs, environment))
        stage = Stage(plan, platform, sink, say, alone={name: dict(more) for name, more in drill.alone.items()})
        ends.callback(stage.close_mail_server)
        platform.environment |= {"EMAIL_CHANNEL": "smtp", "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}"}
        ends.enter_context(drill.around(stage))
        platform.manage("create_topics")
        prometheus = begin(drill, stage, place)
        ends.callback(prometheus.end)
        return play(drill, stage, prometheus)


def delete_topics(servers: str, prefix: str) -> None:
    from tests.debezium.connector import delete_topics as delete

    delete(servers, lambda topic: topic.startswith(prefix))


def begin(drill: Drill, stage: Stage, place: Path) -> Prometheus:
    """Processes, traffic, and the Prometheus that watches them."""
    stage.start_web()
    for command in drill.workers:
        stage.start(*command)
    flow = ["--flow", drill.flow] if drill.flow else []
    stage.living["traffic"] = stage.platform.run(["-m", "tests.drills.traffic", "--rate", "2", *flow], "traffic", {})
    say, quick = stage.say, stage.plan.quick
    rules = place / "alerts.yml"
    rules.write_text(hurried(RULES.read_text(), quick))
    seconds = max(LEAST, SECONDS // quick)
    how = f"every `for:` and window divided by {quick}" if quick > 1 else "as they are"
    say(f"web, {', '.join(stage.ports)}, sample traffic; rules {how}, a scrape each {seconds} s")
    prometheus = Prometheus(installed(), place, stage.site.port, stage.ports.values(), rules, seconds, seconds)
    try:
        wait_for(lambda: prometheus.up() == 1 + len(stage.ports), START, "every process to be scraped", 0.5)
    except AssertionError:
        prometheus.end()
        raise
    return prometheus


def play(drill: Drill, stage: Stage, prometheus: Prometheus) -> bool:
    """Failure, alert, runbook, no alert, `verify`."""
    say = stage.say
    if not drill.alerts:
        return healthy(stage, prometheus) and verified(stage)
    names = ", ".join(drill.alerts)
    wait_for(lambda: not {*drill.alerts} & prometheus.alerts().keys(), START, f"{names} to be silent before", 1)
    say(f"staged: {drill.staged}")
    drill.fail(stage)
    wait_for(Fired(drill.alerts, prometheus, say), patience(stage), f"{names} to fire", 1)
    others = sorted(prometheus.alerts().keys() - {*drill.alerts})
    say(f"the runbook, docs/alerts.md#{drill.alerts[0].lower()}" + (f"; also {', '.join(others)}" if others else ""))
    calm = Calm(drill.alerts, prometheus, say)
    drill.mend(stage)
    wait_for(calm, patience(stage), f"{names} to end", 1)
    return verified(stage)


class Fired:
    """Whether each of the alerts has fired since this was made."""

    def __init__(self, alerts: Sequence[str], prometheus: Prometheus, say: Callable[[str], None]) -> None:
        self.silent, self.prometheus, self.say, self.began = set(alerts), prometheus, say, time.monotonic()

    def __call__(self) -> bool:
        states = self.prometheus.alerts()
        for alert in sorted(alert for alert in self.silent if states.get(alert) == "firing"):
            self.silent.remove(alert)
            self.say(f"{alert} fires after {time.monotonic() - self.began:.0f} s")
        return not self.silent


class Calm:
    """Whether all of them have been away for a while in which web was scraped: a gap in the numbers ends alerts, too."""

    def __init__(self, alerts: Sequence[str], prometheus: Prometheus, say: Callable[[str], None]) -> None:
        self.prometheus, self.say, self.began = prometheus, say, time.monotonic()
        self.since = dict.fromkeys(alerts, self.began)

    def __call__(self) -> bool:
        states, now = self.prometheus.alerts(), time.monotonic()
        gap = self.prometheus.values('up{job="spillway-web"}') != [1]
        self.since |= {alert: now for alert in self.since if gap or alert in states}
        if min(now - since for since in self.since.values()) <= CALM:
            return False
        for alert, since in self.since.items():
            self.say(f"{alert} is over {since - self.began:.0f} s after the runbook was opened")
        return True


def patience(stage: Stage) -> float:
    """Seconds: the longest `for:` is 90 minutes, the longest window, and what a rule itself compares with, is half an hour."""
    return 2400 + 5400 / stage.plan.quick


def healthy(stage: Stage, prometheus: Prometheus) -> bool:
    """Watch for minutes; whether nothing fired."""
    until = time.monotonic() + 60 * stage.plan.minutes
    minute, fired = 0.0, set[str]()
    while time.monotonic() < until:
        fired |= {name for name, state in prometheus.alerts().items() if state == "firing"}
        if time.monotonic() > minute:
            minute = time.monotonic() + 60
            stage.say(f"{(until - time.monotonic()) / 60:.0f} minutes to go, {len(stage.sink.accepted)} mails, "
                      f"fired: {', '.join(sorted(fired)) or 'nothing'}; holds: {prometheus.alerts() or 'nothing'}")  # fmt: skip
        time.sleep(1)
    stage.say(
        f"{stage.plan.minutes:g} minutes, {len(stage.sink.accepted)} mails, fired: {', '.join(sorted(fired)) or 'nothing'}"
    )
    return not fired


def verified(stage: Stage) -> bool:
    """The traffic ends; whether everything adds up."""
    stage.living["traffic"].stop()
    done = stage.platform.manage("verify", check=False)
    stage.say(f"$ python manage.py verify: {(done.stdout.strip() or done.stderr.strip()).splitlines()[-1][:150]}")
    return not done.returncode
