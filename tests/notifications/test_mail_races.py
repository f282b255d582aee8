"""Webhooks and workers at the same rows, each on a connection of its own."""

import json
import random
import time

import pytest
from django.utils import timezone

from config.database.clock import database_now
from notifications.channels.local import Memory
from notifications.mail import deliveries
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.webhooks.inbox import apply, apply_open, store
from notifications.webhooks.providers import generic
from outbox.channels.handlers import Outcome
from outbox.models import OutboxMessage
from tests.notifications.post import go, paid
from tests.notifications.signing import at, event
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)


def stored(*events):

    return store(generic(json.dumps(list(events)).encode()), "generic", {}, database_now())


def test_the_same_event_arriving_at_once_is_stored_once(transactional_db, email):
    for _ in range(10):
        one = event("opened")
        found = race(*[lambda one=one: stored(one) for _ in range(3)])
        assert sorted(map(len, found)) == [0, 0, 1]


def test_two_that_apply_the_same_events_apply_each_once(transactional_db, email):
    messages = [paid(f"u{number}@example.com") for number in range(6)]
    go(email)
    ids = stored(
        *(event(kind, m.pk, occurred_at=at(-5)) for m in messages for kind in ("deferred", "delivered", "bounced"))
    )
    backwards = list(reversed(ids))
    found = race(
        lambda: apply(ids, timezone.now()), lambda: apply(backwards, timezone.now()), lambda: apply_open(timezone.now())
    )
    apply_open(timezone.now())
    assert sum(sum(counts.values()) for counts in found) <= len(ids)
    assert not WebhookEvent.objects.open().exists()
    assert set(Delivery.objects.values_list("status", flat=True)) == {"bounced"}
    assert Suppression.objects.count() == 6


def test_events_of_one_mail_in_several_hands_end_where_one_hand_would(transactional_db, email, monkeypatch):
    hear = deliveries._take_in
    monkeypatch.setattr(deliveries, "_take_in", lambda *given: time.sleep(0.01) or hear(*given))
    for number in range(8):
        message = paid(f"u{number}@example.com")
        go(email)
        kinds = [("accepted", -9), ("deferred", -8), ("bounced", -7), ("delivered", -6)]
        lots = [stored(event(kind, message.pk, occurred_at=at(seconds))) for kind, seconds in kinds]
        random.shuffle(lots)
        race(*[lambda ids=ids: apply(ids, timezone.now()) for ids in lots])
        assert Delivery.objects.get(pk=message.pk).status == "delivered"
        assert not WebhookEvent.objects.open().exists()


def test_proof_and_settlement_at_once_end_as_sent_with_one_delivery(transactional_db, email):
    for number in range(8):
        message = paid(f"u{number}@example.com")
        Memory.script.append(Outcome("sent", receipt="r") if number % 2 else Outcome("ambiguous", "?"))
        ids = stored(event("delivered", message.pk, provider_message_id="r"))
        race(lambda: go(email), lambda ids=ids: apply(ids, timezone.now()))
        apply_open(timezone.now())
        row = OutboxMessage.objects.get(pk=message.pk)
        delivery = Delivery.objects.get(pk=message.pk)
        assert (row.state, delivery.status) == ("sent", "delivered"), number
    assert not WebhookEvent.objects.open().exists()


def test_suppressing_one_address_from_many_sides_is_one_row(transactional_db, email):
    messages = [paid() for _ in range(4)]
    go(email)
    lots = [stored(event(kind, m.pk)) for m, kind in zip(messages, ["bounced", "complained"] * 2, strict=True)]
    race(*[lambda ids=ids: apply(ids, timezone.now()) for ids in lots])
    assert Suppression.objects.get().reason == "complaint"
