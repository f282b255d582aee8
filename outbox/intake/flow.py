"""Promised messages as the rest of Spillway sees them: picture, gauges, invariants, samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.urls import reverse

from config.database.clock import database_now
from config.database.transactions import consistent_snapshot
from config.flows import Check, Flow, Need, Picture, Reading, Sample, Stage, Worker
from config.kafka import Record, topic_name
from config.kafka.positions import TopicPartition
from config.redelivery import Letters
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.progress import Progress, Trends, position_needs, reader_stage, topic_stage
from outbox.bookkeeping.verify import (
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
    positions_fit_the_log,
)
from outbox.intake import reached
from outbox.intake.envelope import envelope_of
from outbox.intake.handler import GROUP, LONGEST_NAME, NAME, Intake
from outbox.intake.redelivery import PromiseLetters
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs, letters_ever
from outbox.letters.verify import letters_counted

OUTCOMES = ("stored", "repeated", "parked")


class MessagesIn(Flow):
    """Messages that services in any language promise in Kafka."""

    name = NAME

    def workers(self) -> Sequence[Worker]:
        return [Worker("ingest_messages")] if settings.MESSAGES_IN else []

    def picture(self, now: datetime) -> Picture | None:
        return picture(now) if settings.MESSAGES_IN else None

    def gauges(self, now: datetime) -> Iterator[Reading]:
        yield from overview.gauges([NAME])
        yield from progress.gauges(Numbers(now).progress)

    def verify(self) -> Iterator[Check]:
        with consistent_snapshot():
            yield every_record_has_an_outcome(NAME, OUTCOMES)
            yield every_position_is_kept(NAME, topic_name(GROUP), _place_of)
            yield no_partition_is_stopped(NAME, topic_name(GROUP))
            yield letters_counted([NAME])

    def verify_kafka(self) -> Iterator[Check]:
        yield positions_fit_the_log(NAME, topic_name(GROUP), list(map(topic_name, settings.MESSAGES_IN)))

    def samples(self, seed: int) -> Iterator[Sample]:
        topics = [topic for topic, grants in settings.MESSAGES_IN.items() if "email" in grants.get("", ())]
        return promises(topics[0], seed) if topics else iter(())

    def arrived(self) -> int:
        return counters.totals(NAME).get("read", 0)

    def waiting(self) -> Sequence[tuple[str, int]]:
        return [("promises unread", Watermark.objects.of_group(GROUP).unread())]

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(NAME)
        return [
            ("promises read", totals.get("read", 0)),
            ("promises stored", totals.get("stored", 0)),
            ("promises repeated", totals.get("repeated", 0)),
            ("dead letters of promises", letters_ever(self.sources())),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        if settings.MESSAGES_IN:
            yield NAME, *Watermark.objects.of_group(GROUP).diagnosis("ingest_messages", database_now())

    def sweep(self, now: datetime) -> int:
        reached.note(GROUP, now)  # before the outbox, which comes next, deletes keys
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


def _place_of(scope: str) -> TopicPartition | None:
    """None for a topic that is not in MESSAGES_IN any more."""
    name, _, number = scope.rpartition("/")
    known = {topic[:LONGEST_NAME]: topic for topic in settings.MESSAGES_IN}
    return (topic_name(known[name]), int(number)) if name in known and number.isdigit() else None


@register(Tags.compatibility)
def granted_channels_exist(app_configs: object, **_: object) -> list[CheckMessage]:
    """A channel of MESSAGES_IN that nobody handles would make every promise for it a letter."""
    granted = {name for grants in settings.MESSAGES_IN.values() for channels in grants.values() for name in channels}
    known = ", ".join(settings.HANDLERS)
    return [
        Error(f"MESSAGES_IN: HANDLERS has no channel {name!r}; it has {known}.", id="spillway.E024")
        for name in sorted(granted - settings.HANDLERS.keys())
    ]


# -- Home --------------------------------------------------------------------------------------------------
@dataclass
class Numbers(Trends):
    """Counters and indexed look-ups, each asked once."""

    names: Sequence[str] = (NAME,)

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(GROUP), [topic_name(name) for name in settings.MESSAGES_IN], self.now)

    @cached_property
    def totals(self) -> dict[str, int]:
        return counters.totals(NAME)


def picture(now: datetime) -> Picture:
    """Home's row of promised messages."""
    numbers = Numbers(now)
    return Picture(
        name="Messages in",
        purpose="Any service promises a mail",
        stages=list(_stages(numbers)),
        needs=list(_needs(numbers)),
        **letter_counts([NAME]),
        letters_last_hour=numbers.in_last_hour("parked", "late"),
        url=reverse("admin:outbox_outboxmessage_changelist"),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


def _stages(numbers: Numbers) -> Iterator[Stage]:
    topics = list(settings.MESSAGES_IN)
    yield topic_stage(topics[0] if len(topics) == 1 else f"{len(topics)} topics", numbers, numbers.progress)
    yield reader_stage("Take in", numbers, numbers.progress, "stored", ["repeated"], ["parked"])
    trend = numbers.history("stored")
    total, parked = (numbers.totals.get(name, 0) for name in ("stored", "parked"))
    url = reverse("admin:outbox_outboxmessage_changelist")
    yield Stage("Outbox", f"{total:,}", "promised", [f"{parked:,} refused ever"], url, trend=trend[:-1])


def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.progress, "Intake of messages")
    yield from letter_needs([NAME])


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
