"""Attempts: what became of each try, written down once."""

from __future__ import annotations

from uuid import uuid4

import pytest

from config.database.clock import database_now
from outbox.delivery.candidates import read_messages
from outbox.delivery.claim import claim
from outbox.delivery.overdue import rescue
from outbox.delivery.settle import Call, close_attempts
from outbox.messages import publish
from outbox.models import DeliveryAttempt, OutboxMessage
from tests.outbox.scripted import PERMANENT, TRANSIENT, message, promise

pytestmark = pytest.mark.django_db


def test_an_attempt_is_closed_once(memory, go):
    """A proof in the middle of the second call, and whoever comes after it, change no outcome that is known."""
    pk = promise()
    memory.answers = [TRANSIENT, TRANSIENT]
    go(memory)
    OutboxMessage.objects.update(available_at=database_now())
    memory.before = lambda messages: publish.confirm({pk: "esp-7"}, database_now())
    go(memory)
    assert outcomes() == [("transient", ""), ("sent", "esp-7")]
    results = [(one, PERMANENT) for one in read_messages(OutboxMessage.objects.all())]
    nothing, now = claim(memory, "poll", 1), database_now()
    for attempt in DeliveryAttempt.objects.all():
        close_attempts(nothing, Call(results, now, {pk: attempt.pk.hex}), results, now)
    assert outcomes() == [("transient", ""), ("sent", "esp-7")]


def test_an_open_attempt_of_an_earlier_lease_says_nothing_about_this_one(memory):
    pk = promise()
    found = claim(memory, "poll", 1)
    DeliveryAttempt.objects.create(
        message_id=pk, channel="memory", number=1, lease_token=uuid4(), path="poll", worker="w",
        started_at=found.now,
    )  # fmt: skip
    OutboxMessage.objects.update(lease_until=found.now)
    assert rescue(found.now) == 1
    assert (message(pk).state, message(pk).attempts, message(pk).times_uncertain) == ("pending", 0, 0)
    assert outcomes() == [("", "")]


def test_the_last_try_is_first_although_its_host_has_a_clock_that_is_behind(memory, go, clock):
    promise()
    memory.answers = [TRANSIENT]
    go(memory)
    clock.ahead(seconds=-60)
    OutboxMessage.objects.update(available_at=database_now())
    go(memory)
    assert [attempt.outcome for attempt in DeliveryAttempt.objects.newest_first()] == ["sent", "transient"]


def outcomes() -> list:
    return list(DeliveryAttempt.objects.order_by("id").values_list("outcome", "receipt"))
