"""When messages would leave: by the spread of the shortest window, and by what is left of the longer ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from throttler.api import Backlog, Prospect, forecast, prospect
from throttler.limits.rate import parse_rates
from throttler.messages import microseconds
from throttler.models import Customer, Lane, LaneOwner

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
NOW = microseconds(NOON)
TODAY, YESTERDAY = NOW - 12 * HOUR, NOW - 36 * HOUR


def asked(rates, waiting, count, ttl=6 * 3600):
    return prospect(parse_rates(*rates), waiting, count, ttl * SECOND, NOW)


def test_a_burst_leaves_at_once_and_the_rest_at_the_rate():
    assert asked(("10/s", 5), Backlog(), 5) == Prospect(0, 0, 0)
    assert asked(("10/s", 5), Backlog(), 25) == Prospect(0, 2, 0)
    assert asked(("10/s", 5), Backlog(20), 25) == Prospect(20, 5, 0)  # who waits has spent it


def test_what_is_left_of_a_day_leaves_today_and_the_rest_after_midnight():
    waiting = Backlog(10, [[DAY, TODAY, 9_970]])
    assert asked(("10/s;10000/day",), waiting, 20) == Prospect(10, 3, 0)
    assert asked(("10/s;10000/day",), waiting, 21) == Prospect(10, 12 * 3600, 1)
    assert asked(("10/s;10000/day",), waiting, 10_021, ttl=2 * 86_400) == Prospect(10, 36 * 3600, 0)


def test_a_spent_day_lets_nothing_go_that_lives_until_the_evening():
    waiting = Backlog(500, [[DAY, TODAY, 10_000]])
    assert asked(("10/s;10000/day",), waiting, 100) == Prospect(500, 12 * 3600, 100)


def test_what_was_used_of_an_earlier_day_or_another_window_does_not_count():
    waiting = Backlog(1, [[DAY, YESTERDAY, 10_000], [HOUR, NOW, 10_000]])
    assert asked(("10/s;10000/day",), waiting, 9) == Prospect(1, 1, 0)


def test_a_rate_of_zero_or_a_life_of_zero_lets_nothing_leave():
    assert asked(("0/s",), Backlog(3), 2) == Prospect(3, None, 2)
    assert asked(("10/s",), Backlog(), 2, ttl=0).would_expire == 2


def test_expiry_counts_those_whose_turn_comes_too_late():
    assert asked(("2/s",), Backlog(19), 2, ttl=10) == Prospect(19, 11, 1)
    assert asked(("2/s",), Backlog(100), 2, ttl=10) == Prospect(100, 51, 2)


@pytest.mark.django_db
def test_the_quota_comes_from_the_mirror():
    told = {"topic_id": "t", "epoch": 1, "first": 1, "drained": 0, "seen": 9, "updated_at": NOON}
    limiter = {"tat": [NOW], "quota": [[DAY, TODAY, 10_000]]}
    Lane.objects.create(customer_id="C-7", partition=0, backlog=4, limiter=limiter, **told)
    Customer.objects.create(customer_id="C-7", rates="10/s;10000/day", created_at=NOON, updated_at=NOON)
    LaneOwner.objects.create(name="a", updated_at=NOON - timedelta(seconds=1))
    assert forecast("C-7", 1, NOON) == Prospect(4, 12 * 3600, 1)
    Customer.objects.update(rates="nonsense")
    assert forecast("C-7", 1, NOON) == Prospect(4, 1, 0)  # the default rate, as the owners take it
