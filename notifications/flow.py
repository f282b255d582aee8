"""Orders as the rest of Spillway sees them: sample shoppers, and what must hold of every order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db.models import Sum

from config.flows import Check, Deed, Flow, Reading
from config.telemetry import metrics
from config.uuid7 import is_uuid
from notifications.mail.content import short
from notifications.orders.models import Order, OrderEvent
from notifications.samples import next_order_event
from notifications.verify import checks
from notifications.webhooks.inbox import WebhookEvent

MOST_COUNTED = 100_000


class Orders(Flow):
    """Orders change, and each change writes a mail into the outbox, which sends it."""

    name = "notifications"

    def gauges(self, now: datetime) -> Iterator[Reading]:
        waiting = WebhookEvent.objects.open()[: MOST_COUNTED + 1].count()
        yield Reading(metrics.WEBHOOKS_OPEN, min(waiting, MOST_COUNTED))

    def verify(self) -> Iterator[Check]:
        return checks()

    def samples(self, seed: int) -> Iterator[Deed]:
        rng = random.Random(seed)  # noqa: S311 (sample data)
        while True:
            yield Deed(lambda: next_order_event(rng))

    def letters_about(self, key: str) -> Sequence[str]:
        return Order.objects.aggregates_of(key)

    def called(self, key: str) -> str:
        """An order by the number in its mails: the last digits of its id."""
        kind, _, order = key.partition(":")
        return f"order {short(order)}" if kind == "order" and is_uuid(order) else ""

    def event_in_words(self, event_type: str) -> str:
        known = dict(OrderEvent.Kind.choices)
        return f"Mail: {known[event_type]}" if event_type in known else ""

    def arrived(self) -> int:
        return _created() + _changes()

    def summary(self) -> Sequence[tuple[str, int]]:
        return [("orders created", _created()), ("changes of orders", _changes())]


def _created() -> int:
    return Order.objects.count()


def _changes() -> int:
    return int(Order.objects.aggregate(total=Sum("version"))["total"] or 0)
