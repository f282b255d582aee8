"""The forecast that the API answers with, of what the mirror and the customer's row say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from throttler.api import expected
from throttler.messages import microseconds
from throttler.models import Customer, Lane, LaneOwner

HOUR, DAY = 3_600_000_000, 86_400_000_000
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
NOW = microseconds(NOON)
TODAY = NOW - 12 * HOUR


@pytest.mark.django_db
def test_the_quota_comes_from_the_mirror():
    told = {"topic_id": "t", "first": 1, "drained": 0, "seen": 9, "updated_at": NOON}
    limiter = {"tat": [NOW], "quota": [[DAY, TODAY, 10_000]]}
    Lane.objects.create(customer_id="C-7", partition=0, backlog=4, limiter=limiter, **told)
    Customer.objects.create(customer_id="C-7", rates="10/s;10000/day", created_at=NOON, updated_at=NOON)
    LaneOwner.objects.create(name="a", updated_at=NOON - timedelta(seconds=1))
    assert list(expected("C-7", 1, NOON).values()) == [4, 12 * 3600, 1]
    Customer.objects.update(rates="nonsense")
    assert list(expected("C-7", 1, NOON).values()) == [4, 1, 0]  # the default rate, as the owners take it
