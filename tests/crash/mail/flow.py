"""`--flow outbox`, `messages-in`, `messages-http`: a database of its own, Debezium where it runs, in a process that knows Django."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.mail import run as mail_run
from tests.crash.mail.calls import CallRun
from tests.crash.mail.promises import KafkaRun, topics
from tests.crash.mail.run import TIMINGS, MailRun
from tests.crash.run import Outcome, Plan, alone, django_on, staged
from tests.services import supervisor
from tests.services.connect import Connect

QUICK = 2_000  # events; more of them are time enough for servers that want to be asked again in a minute
PROMISED = 10.0  # a second of each service that promises mails
TURN = 20.0  # seconds of writing a round of kills: a listener starts, joins when its last life's session ends, and has work


@dataclass(frozen=True)
class Mails:
    """A flow of the command line: where the mails go."""

    place: str
    promised: str = ""  # by other services: "kafka" or "http"; else by changes of orders

    def run(self, name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
        """In a process of its own, because Django keeps its first database."""
        big, sides = plan.orders > QUICK, 1 if name == "sqlite" else 2
        wanted = mail_run.Plan(
            plan.orders, plan.kills, plan.seed, self.place, grey=big, rate=self._rate(big, plan),
            relays=sides, intakes=sides * (self.promised == "kafka"), webs=sides * (self.promised == "http"),
        )  # fmt: skip
        say(f"mails to: {self.place}")
        return alone(_run, name, url, servers, wanted, plan.logs)

    def _rate(self, big: bool, plan: Plan) -> float:
        """Events a second of each writer; 0: as fast as they can. A provider that honours keys is a slow one here:
        ahead of it, all hints would come long before it has time, and the listener be killed at nothing."""
        if self.promised:
            return PROMISED
        if not big:
            return plan.orders / 2 / (TURN * max(1, 2 * plan.kills - 1))
        return 20.0 if self.place == "keys" else 0.0


def connect_url() -> str:
    return os.environ.get(Connect.variable) or supervisor.addresses(["connect"]).get(Connect.variable, "")


def _run(name: str, url: str, servers: str, plan: mail_run.Plan, logs: Path | None) -> Outcome:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # asked to stop, it takes everything away, too
    with staged(url, logs, {**TIMINGS, "KAFKA_BOOTSTRAP_SERVERS": servers}) as platform, django_on(platform):
        kind, prefixed = MailRun, capture(name, servers)
        if plan.intakes:
            kind, prefixed = KafkaRun, topics(platform, name, servers)
        elif plan.webs:
            kind, prefixed = CallRun, nullcontext("")
        with prefixed as prefix:
            platform.environment["KAFKA_TOPIC_PREFIX"] = prefix
            chosen = replace(plan, listeners=int(bool(prefix) and kind is MailRun))
            return kind(platform, chosen, resume, lambda text: print(f"      {text}", flush=True)).go()


def resume() -> bool:
    """What an operator does when the credentials are good again."""
    from config.admin.levers import Operator
    from outbox.channels import permits

    return permits.resume("email", Operator("crash run"), "the credentials are good again")


@contextmanager
def capture(name: str, servers: str) -> Iterator[str]:
    """The prefix of the topics that Debezium fills; empty where it does not run."""
    url = connect_url()
    if name == "sqlite" or not url or not servers:
        yield ""
        return
    from tests.debezium.connector import Connector, create_publication

    create_publication()
    connector = Connector(url, servers)
    try:
        connector.start()
        yield connector.prefix
    finally:
        connector.delete()
