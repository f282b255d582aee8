"""Guards that stand behind a lock, each asked alone: between the look at a row and the write the world changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.delivery import levers, overdue
from outbox.delivery.candidates import lower_bound, read_messages
from outbox.letters.models import DeadLetter
from outbox.messages.publish import confirm
from outbox.models import DeliveryAttempt, OutboxMessage
from tests.outbox.scripted import AMBIGUOUS, message, promise, taken_back

pytestmark = pytest.mark.django_db(transaction=True)
ME = Operator("me")


@contextmanager
def meanwhile(**becomes: object) -> Iterator[None]:
    """Behind the first look at messages all of them become this, as if nobody had locked them."""
    looked: list[str] = []

    def change(execute: Callable, sql: str, params: object, many: bool, context: dict) -> object:
        result = execute(sql, params, many, context)
        if not looked and sql.startswith("SELECT") and OutboxMessage._meta.db_table in sql:
            looked.append(sql)
            OutboxMessage.objects.update(**becomes)
        return result

    with connection.execute_wrapper(change):
        yield
    assert looked


@pytest.fixture
def uncertain(memory, go):
    pk = promise()
    memory.answers = [AMBIGUOUS]
    go(memory)
    return pk


def test_what_somebody_gave_up_since_the_look_is_not_confirmed(uncertain):
    DeliveryAttempt.objects.update(finished_at=None)
    with meanwhile(state="dead_lettered"):
        assert confirm({uncertain: "esp-7"}, database_now()) == 0
    assert (message(uncertain).state, message(uncertain).receipt) == ("dead_lettered", "")
    assert DeliveryAttempt.objects.get().finished_at is None


def test_what_was_claimed_since_the_look_does_not_expire(memory):
    promise()
    stale = read_messages(OutboxMessage.objects.all())
    OutboxMessage.objects.update(state="processing")
    with pytest.raises(RuntimeError, match="expired 0 of 1 locked messages"), transaction.atomic():
        overdue.expire("memory", stale, database_now())
    assert OutboxMessage.objects.get().state == "processing"
    assert not DeadLetter.objects.exists()


def test_what_was_settled_since_the_look_is_not_recovered(memory):
    pk = promise()
    now = database_now()
    OutboxMessage.objects.update(state="processing", attempts=1, lease_until=now - timedelta(seconds=1))
    lower_bound.read()  # for some seconds; else it is the first look
    with pytest.raises(RuntimeError, match="recovered 0 of 1 locked messages"), meanwhile(state="sent"):
        overdue.rescue(now)
    # What changed meanwhile is rolled back here with the rest, because it had no session of its own.
    assert message(pk).state == "processing"


def test_only_what_is_uncertain_is_tried_again_or_given_up(memory, uncertain):
    stale = read_messages(OutboxMessage.objects.all())
    OutboxMessage.objects.update(state="sent")
    assert overdue.retry_uncertain([uncertain], database_now()) == 0
    with pytest.raises(RuntimeError, match="gave up 0 of 1 locked messages"), transaction.atomic():
        overdue.give_up_uncertain("memory", stale, "why", database_now())
    assert message(uncertain).state == "sent"
    assert not DeadLetter.objects.exists()


def test_what_was_claimed_since_the_look_is_not_cancelled(memory):
    pk = promise()
    with meanwhile(state="processing"):
        assert levers.cancel([pk], ME, "wrong price") == 0
    assert message(pk).state == "processing"


def test_what_came_back_since_the_look_does_not_come_back_again(memory):
    pk = promise()
    OutboxMessage.objects.update(state="expired")
    with pytest.raises(RuntimeError, match="revived 0 of 1 locked messages"), meanwhile(state="pending"):
        taken_back(pk, database_now())
    assert message(pk).times_revived == 0
