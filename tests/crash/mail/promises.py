"""Crash runs of what other services promise: in Kafka, where intakes are killed beside the relays; and what all of them ask."""

from __future__ import annotations

import base64
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.crash.mail import oracle as mail_oracle
from tests.crash.mail.oracle import Event, Excuses
from tests.crash.mail.promiser import ENOUGH, TOPIC
from tests.crash.mail.run import MailRun
from tests.crash.oracle import Finding, Produced, one_letter_each
from tests.crash.platform import Platform
from tests.crash.run import letters_of
from tests.crash.traffic import Sample
from tests.crash.wire import Wire

PROMISES = (
    "SELECT k.key, m.aggregate, m.state, m.times_uncertain, m.times_revived, m.attempts "
    "FROM outbox_idempotencykey k LEFT JOIN outbox_outboxmessage m ON m.id = k.message_id"
)
MESSAGES = "SELECT COUNT(*) FROM outbox_outboxmessage"
WRONG = ("conflict", "poison")  # kinds of lines of the journal that must be refused
# Points of tests.processes.saboteur within the intake's transaction, and behind it, where Kafka has not heard of it.
POINTS = ("promised", "refused", "counted", "written", "stored")
PATIENCE = 90.0  # seconds that a life which ends at a point may last: it has to get a partition first


class PromiseWire(Wire):
    """The broker as the intake sees it."""

    inputs, group = (TOPIC,), "outbox-intake"


@contextmanager
def topics(platform: Platform, name: str, servers: str) -> Iterator[str]:
    """The prefix of a topic of its own for this run."""
    with PromiseWire.of_a_run(servers, name, TOPIC) as wire:
        platform.manage("create_topics", TOPIC, KAFKA_TOPIC_PREFIX=wire.prefix)
        yield wire.prefix


class PromiseRun(MailRun):
    """As a run of the outbox, but other services promise what is to be sent; subclasses say how it comes in."""

    namespace = TOPIC  # before which the keys of these promises stand

    def __post_init__(self) -> None:
        super().__post_init__()
        self.enough = self.platform.directory / ENOUGH
        self.points: Counter[str] = Counter()
        self.faults: list[str] = []

    @property
    def accepted(self) -> list[str]:
        return [mail["subject"] for mail in list(self.place.server.accepted)]

    def _write(self) -> list[subprocess.Popen[bytes]]:
        self.enough.unlink(missing_ok=True)
        return super()._write()

    def _kill_all(self) -> None:
        """Who is to die has to have work, on a busy machine too: promises go on until the last one did."""
        super()._kill_all()
        self.enough.touch()

    def _far(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.platform.directory.glob("*.journal"))

    def _judge(self, journal: Sequence[Mapping[str, Any]]) -> tuple[list[Event], list[Finding]]:
        events = [event for row in self._rows(PROMISES) if (event := event_of(row, self.namespace))]
        ((messages,),) = self._rows(MESSAGES)
        repeats = {name: times for name, times in Counter(self.accepted).items() if times > 1}
        relays = sum(kill.worker.startswith("relay") for kill in self.kills)
        return events, [
            promised(journal, events, messages),
            mail_oracle.all_sent(events, self.accepted),
            nothing_else(events, self.accepted),
            mail_oracle.seldom_twice(events, repeats, Excuses(relays, self.place.silences)),
            mail_oracle.in_order(events, self.accepted),
            one_id_each(list(self.place.server.accepted)),
            *self._refusals(journal),
            Finding("others died at points of their transaction", str(dict(self.points)), self.faults),
        ]

    def _refusals(self, journal: Sequence[Mapping[str, Any]]) -> list[Finding]:
        """What became of the promises that are none, and of whatever else this way in has of its own."""
        raise NotImplementedError


class KafkaRun(PromiseRun):
    """By Kafka, and the intakes are killed as well."""

    writer = "tests.crash.mail.promiser"

    def __post_init__(self) -> None:
        super().__post_init__()
        environment = self.platform.environment
        # The oracle counts messages; what is told of letters has tests/processes/test_promises.py.
        environment["MESSAGES_REFUSED"] = "off"
        self.wire = PromiseWire(environment["KAFKA_BOOTSTRAP_SERVERS"], environment["KAFKA_TOPIC_PREFIX"])

    def _between(self, turn: int) -> None:
        """One more intake, which dies at a chosen point of its first batch."""
        point = POINTS[turn % len(POINTS)]
        victim = self.platform.launch(
            ["-m", "tests.processes.saboteur", point, "kill", "ingest_messages"], f"victim-{point}", {}
        )
        code = victim.end(PATIENCE)
        self.points[point] += 1
        if code != -9:
            self.faults.append(f"{point}: ended with {code}: {victim.text[-300:]}")

    def _left(self) -> int:
        return super()._left() + self.wire.lag()

    def _refusals(self, journal: Sequence[Mapping[str, Any]]) -> list[Finding]:
        wrong = [produced(line) for line in journal if line["kind"] in WRONG]
        letters = letters_of(self.platform, "--source", TOPIC)
        return [one_letter_each("every other record is one dead letter with its raw bytes", wrong, letters)]


def event_of(row: tuple[Any, ...], namespace: str) -> Event | None:
    """A key and its message; a key of another topic, or of nobody, is none of ours."""
    key, aggregate, state, uncertain, revived, attempts = row
    found, _, name = key.partition("/")
    if found != namespace:
        return None
    number = int(name.rpartition("/")[2])
    return Event(aggregate or "", number, name, state or "gone", uncertain or 0, revived or 0, attempts or 0)


def produced(line: Mapping[str, Any]) -> Produced:
    sample = Sample(line["aggregate"], line["name"], 0, base64.b64decode(line["value_b64"]), TOPIC)
    return Produced(sample, line["partition"], line["offset"])


def promised(journal: Sequence[Mapping[str, Any]], events: Sequence[Event], messages: int) -> Finding:
    """What was acknowledged is there once, whatever came again."""
    told = {(line["aggregate"], line["number"]) for line in journal if line["kind"] == "new"}
    there = Counter((event.order, event.number) for event in events)
    offenders: list[Any] = [*(told ^ there.keys()), *(one for one in there.items() if one[1] > 1)]
    if messages != len(told):
        offenders.append({"messages": messages, "promises": len(told)})
    again = sum(line["kind"] == "again" for line in journal)
    return Finding("each promise is one message", f"{len(told)} promises, {again} of them again", offenders)


def nothing_else(events: Sequence[Event], accepted: Sequence[str]) -> Finding:
    return Finding("nothing else was sent", "", [*(set(accepted) - {event.name for event in events})])


def one_id_each(accepted: Sequence[Mapping[str, str]]) -> Finding:
    """A mail that came twice has the same Message-ID and the same recipient; no two mails share one."""
    of_name: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for mail in accepted:
        of_name[mail["subject"]].add((mail["message_id"], mail["to"]))
    offenders: list[Any] = [one for one in of_name.items() if len(one[1]) > 1]
    shared = Counter(message_id for ids in of_name.values() for message_id, _ in ids)
    offenders += [one for one in shared.items() if one[1] > 1]
    offenders += [one for one in of_name.items() if {to for _, to in one[1]} != {address_of(one[0])}]
    return Finding("each mail has one Message-ID and its recipient", f"{len(of_name)} mails", offenders)


def address_of(name: str) -> str:
    return f"{name.partition('/')[0]}@example.com"
