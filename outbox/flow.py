"""The transactional outbox as the rest of Spillway sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Count

from config.database.clock import database_now
from config.flows import Check, Flow, Picture, Reading, Worker
from config.redelivery import Effect, Judgement, Letters, PayloadForm
from outbox import verify
from outbox.alerts.overview import notices_diagnosis
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.delivery import redelivery
from outbox.diagnosis import channels_diagnosis, workers_diagnosis
from outbox.letters.models import DeadLetter
from outbox.letters.overview import letters_ever
from outbox.messages.models import FLOW, LOCKED, NAMED, READABLE, OutboxMessage
from outbox.messages.retention import sweep_keys, sweep_resends
from outbox.picture import Numbers, gauges
from outbox.processes.overview import processes_diagnosis
from outbox.workers import redelivery as capture


class Outbox(Flow):
    """Messages that were published in a transaction, delivered after it."""

    name = FLOW
    headline = ("messages sent",)

    def workers(self) -> Sequence[Worker]:
        return [Worker("relay_outbox")]

    def picture(self, now: datetime) -> Picture | None:
        from outbox.picture import picture

        return picture(Numbers(now))

    def gauges(self, now: datetime) -> Iterator[Reading]:
        return gauges(now)

    def verify(self) -> Iterator[Check]:
        return verify.checks()

    def verify_payloads(self) -> Iterator[Check]:
        return verify.payload_checks()

    def verify_kafka(self) -> Iterator[Check]:
        return verify.kafka_checks()

    def waiting(self) -> Sequence[tuple[str, int]]:
        rows = OutboxMessage.objects.unfinished().order_by("channel").values_list("channel")
        return [(f"{channel} pending", number) for channel, number in rows.annotate(number=Count("pk"))]

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(FLOW)
        return [
            ("messages sent", totals.get("sent", 0)),
            ("tries that failed", sum(totals.get(kind, 0) for kind in ("transient", "unreachable", "ambiguous"))),
            ("dead letters of messages", letters_ever(self.sources())),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        now = database_now()
        yield ("change capture", *Watermark.objects.of_topic(settings.OUTBOX_CDC_TOPIC).diagnosis("listen_outbox", now))
        yield from processes_diagnosis(now)
        yield from workers_diagnosis(now)
        yield from channels_diagnosis(now)
        yield from notices_diagnosis(now)

    def sweep(self, now: datetime) -> int:
        return sweep_keys(now) + sweep_resends(now)

    def letters(self) -> Sequence[Letters]:
        return [OutboxLetters(FLOW)]


class OutboxLetters(Letters[DeadLetter]):
    """The dead letters of messages, and of records of the change capture."""

    readable = READABLE
    named = NAMED
    locked = LOCKED
    in_line = True

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Judgement]:
        hints, messages = _hints_and_messages(letters)
        return {**capture.judge(hints), **redelivery.judge(messages)}

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        hints, messages = _hints_and_messages(letters)
        return {**redelivery.take_back(messages, now), **capture.take_back(hints, now)}

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        hints, messages = _hints_and_messages(letters)
        return {**capture.effect(hints, now), **redelivery.effect(messages)}

    def requeue_in_words(self, letters: Sequence[DeadLetter]) -> tuple[str, str]:
        hints, messages = _hints_and_messages(letters)
        if hints:
            return "", ""
        promise = "Each message is sent again."
        if redelivery.channels_of(messages) == {"email"}:
            what = "The mail is" if len(messages) == 1 else "Each mail is"
            promise = f"{what} sent again, to the same address and with the same text."
        rest = "It has all its tries again. What counts as sent already is not sent twice. If it fails again, a new letter says why."
        return promise, rest

    def awaited(self, step: str = "") -> bool:
        return step != "decode"  # a hint sends nothing that the poller would not send

    def holdup(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ChannelState.objects.why_closed(redelivery.channels_of(_hints_and_messages(letters)[1]), now)

    def ahead(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        messages = _hints_and_messages(letters)[1]
        return redelivery.ahead([redelivery.message_of(letter) for letter in messages], now)

    def pace(self) -> float:
        rates = [handler.rate() for handler in handlers().values()]
        return min(filter(None, rates), default=0.0)

    def why_not_edited(self, letter: DeadLetter) -> str:
        return "It is a hint of change capture: the poller takes its message in any case." if letter.topic else ""

    def faults(self, letter: DeadLetter) -> Sequence[str]:
        return redelivery.faults(letter)

    def form(self, letter: DeadLetter) -> PayloadForm | None:
        return None if letter.topic else redelivery.form(letter)


def _hints_and_messages(letters: Sequence[DeadLetter]) -> tuple[list[DeadLetter], list[DeadLetter]]:
    """Letters of records of the change capture's topic, and letters of messages."""
    return [letter for letter in letters if letter.topic], [letter for letter in letters if not letter.topic]
