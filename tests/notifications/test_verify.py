"""`verify --flow notifications`: what must hold of orders and their mails is noticed when it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.flow import checks
from notifications.models import Delivery, Order, OrderEvent
from notifications.orders import changes
from outbox.bookkeeping.counters import record_dropped
from outbox.channels.handlers import Outcome
from outbox.delivery import levers
from outbox.models import OutboxMessage
from outbox.partitioned import MESSAGES
from tests.notifications.conftest import new_order
from tests.notifications.post import go, paid
from tests.outbox.aged import aged


def failing() -> dict[str, list]:
    return {check.name: list(check.rows) for check in checks() if not check.ok}


@pytest.fixture
def refunded(db) -> Order:
    order = new_order(1000)
    for action, amount in (("pay", 0), ("refund", 400), ("refund", 600)):
        changes.change(order.pk, action, amount)
    assert failing() == {}
    return order


BY_HAND = {
    "a change without its event": (
        lambda: OrderEvent.objects.filter(number=1).delete(), "orders: as many events as changes"),
    "an event with another number": (
        lambda: OrderEvent.objects.filter(number=2).update(number=9), "orders: as many events as changes"),
    "a wrong sum": (
        lambda: Order.objects.update(refunded_amount=999), "orders: refunded = sum of refunds"),
    "a status that no event says": (
        lambda: Order.objects.update(status="paid"), "orders: the status is the last event's"),
    "a status of an order without events": (
        lambda: Order.objects.filter(pk=new_order().pk).update(status="paid"), "orders: the status is the last event's"),
    "a lost message": (
        lambda: OutboxMessage.objects.filter(event_type="order.paid").delete(), "orders: every event has its message"),
    "a message about another order": (
        lambda: OutboxMessage.objects.filter(event_type="order.paid").update(aggregate="order:another"),
        "orders: every event has its message"),
}  # fmt: skip


@pytest.mark.parametrize("what", BY_HAND)
def test_what_was_changed_by_hand_is_noticed(refunded, what):
    act, named = BY_HAND[what]
    act()
    assert list(failing()) == [named]


def test_messages_that_retention_removed_are_not_missed(refunded):
    """Also where retention was raised since: what was dropped stays gone."""
    OutboxMessage.objects.all().delete()
    today = MESSAGES.partition(database_now().date())
    record_dropped("default", replace(today, key=f"{today.label}.gone"), {("outbox", "sent"): 3})
    assert failing() == {}


def test_a_delivery_that_was_deleted_is_missed(email):
    kept, lost = paid("a@example.com"), paid("b@example.com")
    go(email)
    assert Delivery.objects.count() == 2
    assert failing() == {}
    Delivery.objects.filter(pk=lost.pk).delete()
    assert failing() == {"orders: every mail that was sent has its delivery": [lost.pk]}
    assert kept.pk != lost.pk


def test_a_delivery_may_go_with_its_day(email, settings):
    message = paid()
    go(email)
    aged(message.pk, 3)
    OrderEvent.objects.all().delete()
    Order.objects.all().delete()
    Delivery.objects.all().delete()
    settings.OUTBOX_RETENTION_DAYS = 1
    assert failing() == {}
    settings.OUTBOX_RETENTION_DAYS = 3
    assert list(failing()) == ["orders: every mail that was sent has its delivery"]


def test_a_mail_that_a_person_marks_as_sent_has_no_delivery(email, monkeypatch):
    message = paid()
    monkeypatch.setattr(email.channel, "send", lambda *_: Outcome("ambiguous", "no answer"))
    go(email)
    assert levers.it_was_sent([message.pk], Operator("ann"), "the provider says so") == 1
    assert OutboxMessage.objects.get().state == "sent"
    assert not Delivery.objects.exists()
    assert failing() == {}
