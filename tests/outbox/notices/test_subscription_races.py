"""Two add the last subscription that one person may have, each on a connection of its own."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from django.contrib.auth.models import User

from outbox.admin import subscriptions
from outbox.admin.subscriptions import SubscriptionForm, save
from outbox.audit_log.models import OperatorAction
from outbox.notices.models import MOST_OF_ONE, Subscription
from tests.outbox.notices.test_page import FORM
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)
MOMENT = 2.0  # seconds; as long as who has seen room waits for the other to see it, too


def add(user: User, name: str) -> tuple[bool, SubscriptionForm]:
    form = SubscriptionForm({**FORM, "name": name}, may_manage=False)
    assert form.is_valid(), form.errors
    return save(form, None, user), form


def test_of_two_tenth_subscriptions_at_once_one_is_taken(monkeypatch):
    monkeypatch.setattr(subscriptions, "look_at", lambda address: "Slack")
    ada, eve = (User.objects.create_user(name, is_staff=True) for name in ("ada", "eve"))
    for number in range(MOST_OF_ONE - 1):
        add(ada, f"of ada {number}")
    both_saw, look = threading.Barrier(2), subscriptions._has_room

    def look_together(owner: int) -> bool:
        room = look(owner)
        with suppress(threading.BrokenBarrierError):
            both_saw.wait(MOMENT)
        return room

    monkeypatch.setattr(subscriptions, "_has_room", look_together)
    results = race(lambda: add(ada, "the tenth"), lambda: add(ada, "also the tenth"))
    (refused,) = (form for saved, form in results if not saved)
    assert refused.errors["name"] == [subscriptions.FULL]
    assert Subscription.objects.filter(owner=ada).count() == MOST_OF_ONE
    assert OperatorAction.objects.filter(verb="add_subscription").count() == MOST_OF_ONE
    assert add(eve, "of eve")[0], "another person has room of their own"
