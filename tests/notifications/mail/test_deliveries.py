"""Deliveries move from the status in which they were locked, and from no other."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from notifications.mail import deliveries
from notifications.mail.deliveries import News, Standing, move
from notifications.models import Delivery
from tests.notifications.post import email, go, paid  # noqa: F401 (a fixture)
from tests.row_locks import locks_asked_for


def test_a_delivery_that_changed_although_it_is_locked_is_not_overwritten(email, monkeypatch):  # noqa: F811
    message = paid()
    go(email)
    hear = deliveries._take_in

    def meanwhile(*given):
        Delivery.objects.update(status="bounced")
        return hear(*given)

    monkeypatch.setattr(deliveries, "_take_in", meanwhile)
    now = database_now()
    with locks_asked_for() as locks, pytest.raises(RuntimeError, match="moved 0 of 1"):
        move({message.pk: [News(Standing("delivered", now))]}, now)
    assert locks == ["notifications_delivery"]
    assert Delivery.objects.get().status == "bounced"


def test_of_what_happened_twice_the_first_time_is_kept(email):  # noqa: F811
    message = paid()
    go(email)
    now = database_now()
    for seconds in (-5, -9, -7):
        at = now + timedelta(seconds=seconds)
        move({message.pk: [News(Standing(kind, at)) for kind in ("delivered", "bounced", "complained")]}, now)
    row, first = Delivery.objects.get(), now - timedelta(seconds=9)
    assert (row.delivered_at, row.bounced_at, row.complained_at) == (first, first, first)
