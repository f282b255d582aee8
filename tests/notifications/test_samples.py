"""Sample shoppers use the real code, and what must hold of orders is noticed when it does not."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from config.database.clock import database_now
from notifications.flow import checks, next_order_event
from notifications.orders import changes
from notifications.orders.models import Order, OrderEvent
from outbox.bookkeeping.counters import record_dropped
from outbox.models import DeadLetter, FailureGroup, OutboxMessage
from outbox.partitioned import MESSAGES
from tests.notifications.conftest import new_order
from tests.notifications.post import email, go

__all__ = ["email"]


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


@pytest.fixture
def refunded(db) -> Order:
    order = new_order(1000)
    for action, amount in (("pay", 0), ("refund", 400), ("refund", 600)):
        changes.change(order.pk, action, amount)
    assert failing() == []
    return order


def test_a_change_without_its_event_is_noticed(refunded):
    OrderEvent.objects.filter(number=1).delete()
    assert failing() == ["orders: as many events as changes"]


def test_a_wrong_sum_is_noticed(refunded):
    Order.objects.update(refunded_amount=999)
    assert failing() == ["orders: refunded = sum of refunds"]


def test_a_status_nobody_took_is_noticed(refunded):
    Order.objects.update(status="paid")
    assert failing() == ["orders: the status is the last event's"]
    new_order()
    Order.objects.filter(version=0).update(status="paid")
    Order.objects.filter(version=3).update(status="refunded")
    assert failing() == ["orders: the status is the last event's"]


def test_a_lost_message_is_noticed(refunded):
    OutboxMessage.objects.filter(event_type="order.paid").delete()
    assert failing() == ["orders: every event has its message"]


def test_a_message_about_another_order_is_noticed(refunded):
    OutboxMessage.objects.filter(event_type="order.paid").update(aggregate="order:another")
    assert failing() == ["orders: every event has its message"]


def test_messages_that_retention_removed_are_not_missed(refunded):
    """Also where retention was raised since: what was dropped stays gone."""
    OutboxMessage.objects.all().delete()
    today = MESSAGES.partition(database_now().date())
    record_dropped("default", replace(today, key=f"{today.label}.gone"), {("outbox", "sent"): 3})
    assert failing() == []
