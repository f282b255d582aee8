"""Leases: what somebody holds is not leased again before his time is over."""

import uuid
from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.models import OutboxMessage
from tests.outbox.scripted import message, promise

pytestmark = pytest.mark.django_db


def test_what_is_leased_is_leased_again_only_when_the_lease_is_over(memory):
    held, free = promise("order:1"), promise("order:2")
    first, second = uuid.uuid4(), uuid.uuid4()
    now, minute = database_now(), timedelta(minutes=1)
    assert OutboxMessage.objects.lease([held], first, now + minute, now) == 1
    assert OutboxMessage.objects.lease([held, free], second, now + minute, now) == 1
    assert (message(held).lease_token, message(free).lease_token) == (first, second)
    assert OutboxMessage.objects.lease([held], second, now + 2 * minute, now + minute) == 1
