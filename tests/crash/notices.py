"""`--flow notices`: partitions stop and run again while notifiers are killed, and what two receivers have heard."""

from __future__ import annotations

import os
import random
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from tests.crash.oracle import Finding
from tests.crash.platform import Platform
from tests.crash.run import Outcome, Plan, alone, django_on, everything_adds_up, staged
from tests.crash.wire import wait_for
from tests.outbox.notices.receiver import Receiver, receiving

SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "config.settings", "LOG_LEVEL": "WARNING", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "NOTIFY_ALLOWED_HOSTS": "127.0.0.1", "NOTIFY_WINDOW_SECONDS": "5", "NOTIFY_TIMEOUT_SECONDS": "10",
    "SECRET_KEY": "of this run alone, and long enough for a key",
}  # fmt: skip
LINE = re.compile(r"(Over: |Was, and is over: |Back again: |Still: )?transfer-requests, partition (\d+) is stopped")
MARK = "may be a repeat"
ANSWERS_AFTER = 0.4  # seconds: a notifier is killed while somebody has its notice and has not answered
SOON = 30.0  # seconds until a notifier has looked and begins to send
BESIDE = 4  # lines of a message that are about Kafka, which is away, and back, and away
PATIENCE = 300.0  # seconds: a try that was cut off is held for a minute
BEGAN, ENDED = ("", "Was, and is over: "), ("Over: ", "Was, and is over: ")


class Heard(NamedTuple):
    """What one message said of one partition."""

    receiver: str
    partition: int
    phase: str
    marked: bool  # as one that may have come before


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    return alone(_run, name, url, plan)


def _run(name: str, url: str, plan: Plan) -> Outcome:
    with staged(url, plan.logs, SETTINGS) as platform, django_on(platform):
        from outbox.notices.words import MOST_LINES

        if plan.orders > MOST_LINES - BESIDE:
            raise SystemExit(f"--orders {plan.orders}: a message names {MOST_LINES}, and some would be missed")
        return Notices(platform, plan, ["notify-1"] if name == "sqlite" else ["notify-1", "notify-2"]).go()


class Notices:
    """`plan.orders` partitions stop in as many rounds as there are kills, and run again in as many more."""

    def __init__(self, platform: Platform, plan: Plan, names: Sequence[str]) -> None:
        self.platform, self.plan, self.random = platform, plan, random.Random(plan.seed)
        self.living = {name: platform.start("notify_people", name=name) for name in names}
        self.rounds = [name for _ in range(plan.kills) for name in names]
        self.deaths: Counter[str] = Counter()
        self.codes: list[int] = []

    def go(self) -> Outcome:
        began = time.monotonic()
        with ExitStack() as stack:
            receivers = {kind: stack.enter_context(receiving()) for kind in ("plain", "slack_shaped")}
            for kind, receiver in receivers.items():
                receiver.answers_after = ANSWERS_AFTER
                self._subscribe(kind, getattr(receiver, kind))
            self._set_alarms(range(self.plan.orders), "")
            for alarm in ("The log is damaged.", ""):
                self._kill_while_told(alarm)
                wait_for(self._all_told, PATIENCE, "everybody to be told", 0.5)
            took = time.monotonic() - began
            codes = {name: worker.stop() for name, worker in self.living.items()}
        verify = self.platform.manage("verify", "--json", check=False)
        heard = [word for kind, receiver in receivers.items() for word in words_of(kind, receiver)]
        findings = [
            *judge(heard, range(self.plan.orders), list(receivers)),
            Finding(
                "notifiers were killed, each by signal 9", str(dict(self.deaths)), [c for c in self.codes if c != -9]
            ),
            *everything_adds_up(verify, codes, "", took),
        ]
        figures = {
            "partitions": self.plan.orders, "messages": sum(len(receiver.bodies) for receiver in receivers.values()),
            "deaths": dict(self.deaths), "repeats": sum(word.marked for word in heard),
            "load": round(os.getloadavg()[0], 1), "seconds": round(took, 1),
        }  # fmt: skip
        return Outcome(findings, figures)

    def _subscribe(self, kind: str, address: str) -> None:
        from config.database.clock import database_now
        from outbox.notices.addresses import seal
        from outbox.notices.models import Subscription

        Subscription.objects.create(
            name=kind,
            address=seal(address),
            shown=kind,
            kinds=["partition"],
            urgency="watch",
            created_at=database_now(),
        )

    def _kill_while_told(self, alarm: str) -> None:
        """A share of the partitions changes, then one notifier is killed: as a rule while it tells somebody."""
        share = -(-self.plan.orders // max(1, len(self.rounds)))
        for number, name in enumerate(self.rounds or [""]):
            self._set_alarms(range(self.plan.orders)[number * share : (number + 1) * share], alarm)
            if name:
                self._kill(name)

    def _set_alarms(self, partitions: Iterable[int], alarm: str) -> None:
        """As the consumer does that finds a damaged log, and the person who lets it go on.

        Each for a reason of its own: those that stop for one reason are one incident, whatever their numbers.
        """
        from buffer.streams import GROUP
        from config.database.clock import database_now
        from config.kafka import topic_name
        from outbox.bookkeeping.models import Watermark

        group, topic, now = topic_name(GROUP), topic_name("transfer-requests"), database_now()
        for partition in partitions:
            reason = alarm and f"{alarm} It is segment {string.ascii_lowercase[partition]}."
            Watermark.objects.update_or_create(
                group=group, topic=topic, partition=partition,
                defaults={"next_offset": 1, "alarm": reason, "caught_up_at": now, "updated_at": now},
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        from outbox.notices.models import Notice

        deadline = time.monotonic() + SOON
        while not (sending := Notice.objects.filter(state="sending").exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(self.random.uniform(0, ANSWERS_AFTER))
        worker = self.living[name]
        self.codes.append(worker.kill())
        self.deaths["while somebody is told" if sending else "between"] += 1
        self.living[name] = self.platform.start("notify_people", name=name)

    def _all_told(self) -> bool:
        """Nothing is on its way, and what is known is what there is: a look comes every ten seconds."""
        from outbox.bookkeeping.models import Watermark
        from outbox.notices.models import Incident, Notice

        stopped = Watermark.objects.exclude(alarm="").count()
        known = Incident.objects.open().filter(title__contains="is stopped").count()
        return stopped == known and not Notice.objects.unfinished().exists()


def words_of(kind: str, receiver: Receiver) -> list[Heard]:
    """Of each message what it said of which partition, once, though its title and its text may both say it."""
    said = []
    for body in receiver.bodies:
        text = f"{body.get('title', '')}\n{body.get('message', body.get('text', ''))}"
        said += sorted({Heard(kind, int(number), phase, MARK in text) for phase, number in LINE.findall(text)})
    return said


def judge(heard: Sequence[Heard], partitions: Iterable[int], receivers: Sequence[str]) -> list[Finding]:
    """Each receiver heard of each beginning and each end, and what it heard twice said that it may be a repeat."""
    wanted = [(receiver, partition) for receiver in receivers for partition in partitions]
    plain = Counter((word.receiver, word.partition, word.phase) for word in heard if not word.marked)
    return [
        Finding("everybody heard that it began", f"{len(wanted)}", _missing(heard, wanted, BEGAN)),
        Finding("everybody heard that it is over", f"{len(wanted)}", _missing(heard, wanted, ENDED)),
        Finding("what came twice says so", f"{len(heard)} lines", [word for word in plain.items() if word[1] > 1]),
        Finding("nobody heard of anything else", "", sorted({(w.receiver, w.partition) for w in heard} - set(wanted))),
    ]


def _missing(heard: Iterable[Heard], wanted: Iterable[tuple[str, int]], phases: tuple[str, ...]) -> list[Any]:
    known = {(word.receiver, word.partition) for word in heard if word.phase in phases}
    return [place for place in wanted if place not in known]
