"""Promised messages as the rest of Spillway sees them: picture, gauges, invariants, samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.urls import reverse

from config.flows import HomeRow, Sample, Stage, Worker
from config.kafka import Record, topic_name
from config.letters import Letters
from outbox.bookkeeping import counters
from outbox.bookkeeping.progress import reader_stage, topic_stage
from outbox.intake import reached, refusals
from outbox.intake.envelope import envelope_of
from outbox.intake.handler import GROUP, LONGEST_NAME, NAME, Intake
from outbox.intake.promise_letters import PromiseLetters
from outbox.letters.overview import letters_ever
from outbox.letters.topic_flow import TopicFlow, TopicNumbers


class MessagesIn(TopicFlow[TopicNumbers]):
    """Messages that services in any language promise in Kafka."""

    name = NAME
    purpose = "Any service promises a mail"
    page = "admin:outbox_outboxmessage_changelist"
    group = GROUP
    command = "ingest_messages"
    reader = "Intake of messages"
    unread = "promises unread"
    outcomes = ("stored", "repeated", "parked")
    scope_length = LONGEST_NAME
    numbers_class = TopicNumbers

    def workers(self) -> Sequence[Worker]:
        return [Worker("ingest_messages")] if settings.MESSAGES_IN else []

    def topics(self) -> Sequence[str]:
        return list(settings.MESSAGES_IN)

    def home_row(self, now: datetime) -> HomeRow | None:
        return super().home_row(now) if settings.MESSAGES_IN else None

    def stages(self, numbers: TopicNumbers) -> Iterator[Stage]:
        return stages(numbers)

    def samples(self, seed: int) -> Iterator[Sample]:
        topics = [topic for topic, grants in settings.MESSAGES_IN.items() if "email" in grants.get("", ())]
        return promises(topics[0], seed) if topics else iter(())

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(NAME)
        return [
            ("promises read", totals.get("read", 0)),
            ("promises stored", totals.get("stored", 0)),
            ("promises repeated", totals.get("repeated", 0)),
            ("dead letters of promises", letters_ever(self.sources())),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        return super().diagnose() if settings.MESSAGES_IN else iter(())

    def sweep(self, now: datetime) -> int:
        reached.record_positions(GROUP, now)  # before the outbox, which comes next, deletes keys
        return 0

    def letters(self) -> Sequence[Letters]:
        return [PromiseLetters(NAME)]

    def replays(self) -> Mapping[str, Callable[[], Intake]]:
        return dict.fromkeys(settings.MESSAGES_IN, Intake)

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        return {topic_name(topic): _names_in for topic in settings.MESSAGES_IN}


def _names_in(record: Record) -> Sequence[str]:
    fields = envelope_of(record).fields
    return [str(fields[name]) for name in ("aggregate", "idempotency_key") if fields.get(name)]


@register(Tags.compatibility)
def granted_channels_exist(app_configs: object, **_: object) -> list[CheckMessage]:
    """A channel of MESSAGES_IN that nobody handles would make every promise for it a letter."""
    granted = {name for grants in settings.MESSAGES_IN.values() for channels in grants.values() for name in channels}
    known = ", ".join(settings.HANDLERS)
    if settings.MESSAGES_REFUSED and refusals.CHANNEL not in settings.HANDLERS:
        text = f"MESSAGES_REFUSED: needs the channel {refusals.CHANNEL!r}; HANDLERS has {known}."
        return [Error(text, id="spillway.E024")]
    return [
        Error(f"MESSAGES_IN: HANDLERS has no channel {name!r}; it has {known}.", id="spillway.E024")
        for name in sorted(granted - settings.HANDLERS.keys())
    ]


# -- Its row on home --------------------------------------------------------------------------------------------------
def stages(numbers: TopicNumbers) -> Iterator[Stage]:
    topics = list(settings.MESSAGES_IN)
    yield topic_stage(topics[0] if len(topics) == 1 else f"{len(topics)} topics", numbers, numbers.progress)
    yield reader_stage("Take in", numbers, numbers.progress, "stored", ["repeated"], ["parked"])
    trend = numbers.history("stored")
    total, parked = numbers.totals["stored"], numbers.totals["parked"]
    url = reverse("admin:outbox_outboxmessage_changelist")
    yield Stage("Outbox", f"{total:,}", "promised", [f"{parked:,} refused ever"], url, trend=trend[:-1])


# -- Sample traffic: invoices by mail, some repeated, some that cannot be sent -------------------------------
POISON = [
    b"{not json",
    b'{"channel": "email"}',
    b'{"channel": "fax", "event_type": "e", "aggregate": "a", "idempotency_key": "k", "payload": {}}',
]
REPEATED, SPOILED = 0.08, 0.01
NAMES = ["ada", "alan", "barbara", "edsger", "grace", "ken", "leslie", "margaret", "niklaus", "tony"]


def promises(topic: str, seed: int) -> Iterator[Sample]:
    """Endless samples for `topic`."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[Mapping[str, Any]] = []
    number = 0
    while True:
        draw = rng.random()
        if draw < SPOILED:
            yield Sample(topic_name(topic), "poison", rng.choice(POISON))
            continue
        if recent and draw < REPEATED:
            envelope = rng.choice(recent)
        else:
            number += 1
            envelope = invoice(f"{seed:02d}-{number:06d}", f"{rng.choice(NAMES)}.{number}@example.org")
            recent = [*recent[-99:], envelope]
        yield Sample(topic_name(topic), envelope["aggregate"], msgspec.json.encode(envelope))


def invoice(number: str, to: str) -> dict[str, object]:
    """The envelope of the mail about one invoice."""
    return {
        "channel": "email",
        "event_type": "invoice.issued",
        "aggregate": f"invoice:{number}",
        "idempotency_key": f"invoice/{number}/issued",
        "payload": {
            "to": to,
            "subject": f"Your invoice {number}",
            "text": f"Hello,\n\nyour invoice {number} is ready.\n",
        },
    }
