"""Idempotency keys are kept as long as OUTBOX_IDEMPOTENCY_DAYS says, and counted when they go."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.messages.retention import sweep_keys
from outbox.models import IdempotencyKey

pytestmark = pytest.mark.django_db


def test_only_what_is_older_than_the_days_goes_and_keys_of_messages_are_counted(settings):
    settings.OUTBOX_IDEMPOTENCY_DAYS = 7
    now = database_now()
    ages = {"young": 0, "nearly": 6.99, "old": 7.01, "older": 30}
    for scope in ("publish", "token 1 POST /orders"):
        for name, days in ages.items():
            IdempotencyKey.objects.create(scope=scope, key=name, created_at=now - timedelta(days=days))
    assert sweep_keys(now) == 4
    assert sorted(set(IdempotencyKey.objects.values_list("key", flat=True))) == ["nearly", "young"]
    assert counters.totals("outbox") == {"keys_swept": 2}
    assert sweep_keys(now) == 0
