"""Sample shoppers use the real code, and what must hold of orders is noticed when it does not."""

from __future__ import annotations

import random
from collections import Counter

from notifications.flow import checks, next_order_event
from notifications.orders.models import Order, OrderEvent
from outbox.models import DeadLetter, FailureGroup, OutboxMessage
from tests.notifications.post import go


def failing() -> list[str]:
    return [check.name for check in checks() if not check.ok]


def test_samples_walk_every_edge_and_everything_adds_up(db):
    rng = random.Random(4)
    happened = Counter(next_order_event(rng) for _ in range(250))
    assert set(happened) == {
        "order.created", "order.paid", "order.cancelled", "order.refunded", "order.part_refunded",
    }  # fmt: skip
    assert OutboxMessage.objects.count() == sum(happened.values()) - happened["order.created"]
    assert failing() == []


def test_samples_are_the_same_for_the_same_seed(db):
    runs = []
    for _ in range(2):
        OrderEvent.objects.all().delete()
        Order.objects.all().delete()
        rng = random.Random(7)
        runs.append([next_order_event(rng) for _ in range(40)])
    assert runs[0] == runs[1]


def test_some_shoppers_have_an_address_that_is_refused(email):
    """A newcomer meets letters of mails in the demo."""
    rng = random.Random(1)
    for _ in range(400):
        next_order_event(rng)
    while go(email):
        pass
    assert 1 < DeadLetter.objects.count() < 30
    assert set(FailureGroup.objects.values_list("title", flat=True)) == {
        "Refused: RCPT: 550 5.1.1 The email account that you tried to reach does not exist",
        "Refused: RCPT: 552 5.2.2 The mailbox is full",
    }
    assert failing() == []
