"""Plausible shoppers: orders that are paid, cancelled, refunded, through the same code as the API; some with a bad address."""

from __future__ import annotations

import random

from config.database.clock import database_now
from notifications.orders import changes
from notifications.orders.changes import Action, Impossible
from notifications.orders.models import Order

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
