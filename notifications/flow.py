"""Orders as the rest of Spillway sees them: sample shoppers, and what must hold of every order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db.models import Sum

from config.database.clock import database_now
from config.flows import Check, Deed, Flow, Reading
from config.telemetry import metrics
from config.uuid7 import is_uuid
from notifications.mail.content import short
from notifications.orders import changes
from notifications.orders.changes import Action, Impossible
from notifications.orders.models import Order, OrderEvent
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


# -- Sample shoppers, through the same code as the API -------------------------------------------------------
NAMES = ["ada", "alan", "barbara", "edsger", "grace", "ken", "leslie", "margaret", "niklaus", "tony"]
CURRENCIES = ["EUR", "EUR", "EUR", "USD", "GBP", "JPY", "KWD"]
CREATED = "order.created"
RECENT = 40  # orders among which a shopper looks for one of his own
DOMAINS = ["example.com", "example.net", "example.org"]
BAD_DOMAINS = ["nobody.example", "full.example"]  # the demo's channel refuses them (notifications/channels/local.py)
BAD = 0.02


def next_order_event(rng: random.Random) -> str:
    """One thing that happens to one order, committed when this returns. Returns what it was.

    Of ten orders seven are paid and one is cancelled; of four paid ones one is refunded, half of those in parts.
    """
    draw = rng.random()
    action: Action
    if draw < 0.45:
        return _create(rng)
    if draw < 0.88:
        action, statuses = ("pay" if draw < 0.82 else "cancel"), [Order.Status.PENDING]
    else:
        action, statuses = "refund", [Order.Status.PAID, Order.Status.PART_REFUNDED]
    orders = list(Order.objects.filter(status__in=statuses).newest_first()[:RECENT])
    if not orders:
        return _create(rng)
    order = rng.choice(orders)
    left = order.total_amount - order.refunded_amount
    amount = rng.choice([left, max(1, left // 3)]) if action == "refund" else 0
    try:
        after = changes.change(order.pk, action, amount)
    except Impossible:  # another process was faster
        return _create(rng)
    return f"order.{after.status}"


def _create(rng: random.Random) -> str:
    domain = rng.choice(BAD_DOMAINS if rng.random() < BAD else DOMAINS)
    address = f"{rng.choice(NAMES)}.{rng.randint(1, 9999)}@{domain}"
    changes.create(address, rng.randint(100, 50_000), rng.choice(CURRENCIES), database_now())
    return CREATED
