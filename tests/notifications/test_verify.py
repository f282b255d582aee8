"""`verify --flow notifications`: a mail that was sent has its delivery."""

from __future__ import annotations

from config.admin.levers import Operator
from notifications.flow import checks
from notifications.models import Delivery, Order, OrderEvent
from outbox.channels.handlers import Outcome
from outbox.delivery import levers
from outbox.models import OutboxMessage
from tests.notifications.post import email, go, paid  # noqa: F401 (a fixture)
from tests.outbox.aged import aged


def failing() -> dict[str, list]:
    return {check.name: list(check.rows) for check in checks() if not check.ok}


def test_a_delivery_that_was_deleted_is_missed(email):  # noqa: F811
    kept, lost = paid("a@example.com"), paid("b@example.com")
    go(email)
    assert Delivery.objects.count() == 2
    assert failing() == {}
    Delivery.objects.filter(pk=lost.pk).delete()
    assert failing() == {"orders: every mail that was sent has its delivery": [lost.pk]}
    assert kept.pk != lost.pk


def test_a_delivery_may_go_with_its_day(email, settings):  # noqa: F811
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


def test_a_mail_that_a_person_marks_as_sent_has_no_delivery(email, monkeypatch):  # noqa: F811
    message = paid()
    monkeypatch.setattr(email.channel, "send", lambda *_: Outcome("ambiguous", "no answer"))
    go(email)
    assert levers.it_was_sent([message.pk], Operator("ann"), "the provider says so") == 1
    assert OutboxMessage.objects.get().state == "sent"
    assert not Delivery.objects.exists()
    assert failing() == {}


def test_an_event_with_another_number_is_found(email):  # noqa: F811
    paid()
    assert failing() == {}
    OrderEvent.objects.update(number=2)
    assert failing()["orders: as many events as changes"]
