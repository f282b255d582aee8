"""The transactional outbox as the rest of Spillway sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings

from config.flows import Check, Flow, Picture, Reading, Refusal, Worker
from config.gate import InvalidRecord
from outbox import verify
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.delivery import levers
from outbox.letters.models import DeadLetter
from outbox.letters.overview import letters_ever
from outbox.measures import Numbers, gauges
from outbox.messages.keys import sweep_keys
from outbox.messages.models import FLOW, OutboxMessage
from outbox.workers import debezium


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

    def is_drained(self) -> bool:
        return not OutboxMessage.objects.unfinished().exists()

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(FLOW)
        return [
            ("messages sent", totals.get("sent", 0)),
            (
                "tries that failed",
                sum(totals.get(kind, 0) for kind in ("transient", "unreachable", "ambiguous")),
            ),
            ("dead letters of messages", letters_ever(self.sources())),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        yield "change capture", *Watermark.objects.of_topic(settings.OUTBOX_CDC_TOPIC).diagnosis()
        for state in ChannelState.objects.filter(name__in=handlers()):
            trouble = f"paused: {state.pause_reason}" if state.paused else ""
            if state.breaker == ChannelState.Breaker.OPEN:
                trouble = f"nobody answers: {state.last_error}"
            yield f"channel {state.name}", not trouble, trouble or "open"

    def sweep(self, now: datetime) -> int:
        return sweep_keys(now)

    # -- dead letters -----------------------------------------------------------------------------------

    def sources(self) -> Sequence[str]:
        return [FLOW]

    def requeue(self, letter: DeadLetter, now: datetime) -> str:
        if letter.topic:
            return _read_again(letter)
        if not levers.revive(UUID(letter.topic_id), now):
            raise Refusal("the message is no longer in the outbox, or on its way already")
        return "the message is pending again"


def _read_again(letter: DeadLetter) -> str:
    """A record of the CDC topic: what it hints at is claimed by the poller in any case."""
    try:
        debezium.read(bytes(letter.payload) if letter.payload is not None else None)
    except InvalidRecord as refusal:
        return f"failed again: {refusal}"[:200]
    return "read; the poller takes what it hints at"
