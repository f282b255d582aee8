"""The tracking ledger as the rest of Spillway sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.conf import settings

from buffer.ledger import redelivery
from buffer.ledger.handler import GROUP, Track
from buffer.ledger.samples import stock_traffic
from buffer.ledger.statements import NAME
from buffer.ledger.topics.effects import Movements
from buffer.ledger.topics.messages import LOCKED, READABLE
from buffer.ledger.topics.movements import Source, sources
from buffer.ledger.verify import checks
from config.database.clock import database_now
from config.flows import Check, Effect, Flow, Judgement, Picture, Reading, Sample, Worker
from config.kafka import Record, topic_name
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.verify import positions_fit_the_log
from outbox.letters.models import DeadLetter
from outbox.letters.overview import letters_ever


class Ledger(Flow):
    """Every stock effect exactly once."""

    name = NAME
    headline = ("stock movements",)

    def workers(self) -> Sequence[Worker]:
        return [Worker("track_inventory")]

    def picture(self, now: datetime) -> Picture | None:
        from buffer.ledger.picture import picture

        return picture(now)

    def gauges(self, now: datetime) -> Iterator[Reading]:
        from buffer.ledger.picture import gauges

        return gauges(now)

    def verify(self) -> Iterator[Check]:
        return checks()

    def verify_kafka(self) -> Iterator[Check]:
        yield positions_fit_the_log(NAME, topic_name(GROUP), list(map(topic_name, settings.MOVEMENTS)))

    def samples(self, seed: int) -> Iterator[Sample]:
        return stock_traffic(seed)

    def arrived(self) -> int:
        return counters.totals(NAME).get("read", 0)

    def waiting(self) -> Sequence[tuple[str, int]]:
        return [("stock messages unread", Watermark.objects.of_group(GROUP).unread())]

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(NAME)
        return [
            ("stock messages read", totals.get("read", 0)),
            ("stock effects applied", totals.get("applied", 0)),
            ("stock repeats", totals.get("duplicate", 0)),
            ("dead letters of stock", letters_ever(self.sources())),
            ("stock movements", totals.get("movements", 0) + totals.get("restored", 0)),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        yield NAME, *Watermark.objects.of_group(GROUP).diagnosis("track_inventory", database_now())

    def replays(self) -> Mapping[str, Callable[[], Track]]:
        return dict.fromkeys(settings.MOVEMENTS, Track)

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        return {topic: partial(_reference_in, source) for topic, source in sources().items()}

    # -- dead letters -----------------------------------------------------------------------------------

    def sources(self) -> Sequence[str]:
        return [NAME]

    def readable(self, source: str) -> Sequence[str]:
        return READABLE

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Judgement]:
        return redelivery.judge(letters)

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        return redelivery.take_back(letters, now)

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        return redelivery.effect(letters)

    def why_not_edited(self, letter: DeadLetter) -> str:
        return ""

    def locked(self, letter: DeadLetter) -> Sequence[str]:
        return LOCKED

    def identity(self, letter: DeadLetter) -> str:
        return redelivery.identity(letter)

    def faults(self, letter: DeadLetter) -> Sequence[str]:
        return redelivery.faults(letter)


def _reference_in(source: Source, record: Record) -> Sequence[str]:
    effect = source.effect(source.gate.decode(record.value)) if record.value else None
    return [effect.reference_id] if isinstance(effect, Movements) else []
