"""Webhooks about mails that outlived, or nearly outlived, the days in which deliveries are kept."""

import pytest

from config.partitions import rotate
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.partitioned import DELIVERIES
from tests.notifications.post import go, paid, state_of
from tests.notifications.signing import event, generic, post, status, tell
from tests.outbox.aged import aged


@pytest.fixture(autouse=True)
def _a_day(settings):
    settings.OUTBOX_RETENTION_DAYS = 1


def test_with_a_retention_of_a_day_a_mail_of_today_has_its_delivery(email):
    message = paid()
    go(email)
    tell(event("bounced", message.pk))
    assert status() == "bounced"
    assert Suppression.objects.get().address == "ada@example.com"


@pytest.mark.parametrize("kind", ["bounced", "complained"])
@pytest.mark.parametrize("days", [1, 3, 40])
def test_the_bounce_of_a_mail_that_outlived_its_day_suppresses(email, days, kind):
    message = paid()
    message.pk = aged(message.pk, days)
    assert go(email) == 1
    assert state_of(message) == "sent"
    answer = post(generic(event(kind, message.pk)))
    assert (answer.status_code, WebhookEvent.objects.get().verdict) == (204, "applied")
    assert Suppression.objects.get().address == "ada@example.com"


def test_a_delivery_that_is_gone_is_judged_by_what_comes_together(email):
    message = paid()
    go(email)
    Delivery.objects.all().delete()
    message.pk = aged(message.pk, 3)
    tell(event("delivered", message.pk), event("opened", message.pk))
    assert not Suppression.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_mail_is_settled_after_its_day_of_deliveries_was_dropped(email):
    message = paid()
    message.pk = aged(message.pk, 3)
    rotate(specs=[DELIVERIES])
    assert go(email) == 1
    assert state_of(message) == "sent"
