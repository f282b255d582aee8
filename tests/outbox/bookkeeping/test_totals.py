"""Totals that are counted elsewhere: they never go back, and a minute gets the difference."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.bookkeeping.progress import Trends

pytestmark = pytest.mark.django_db
KEY = ("throttler", "0", "consumed")


def test_a_total_is_stored_and_the_minute_gets_the_difference():
    now = database_now()
    for total in (5, 12):
        counters.store_totals({KEY: total, ("throttler", "1", "consumed"): 1}, now)
    assert counters.totals("throttler") == {"consumed": 13}
    assert counters.of_last_hour(["throttler"], now)["consumed"][-1] == 13


def test_a_smaller_total_of_a_zombie_changes_nothing():
    now = database_now()
    for total in (12, 5, 12):
        counters.store_totals({KEY: total}, now)
    assert counters.totals("throttler") == {"consumed": 12}
    assert counters.of_last_hour(["throttler"], now)["consumed"][-1] == 12


def test_a_smaller_total_that_read_before_changes_nothing():
    """Read before the other wrote: the statement itself keeps the greater one."""
    flow, scope, name = KEY
    for total in (12, 5):
        counters.RAISE.run([(flow, scope, counters.ONE_WRITER, name, total)])
    assert counters.totals("throttler") == {"consumed": 12}


def test_counts_of_the_last_minutes_of_several_flows_are_one_sum():
    now = database_now()
    counters.add({("a", "", "parked"): 3, ("b", "", "late"): 4, ("b", "", "read"): 50, ("c", "", "late"): 60}, now)
    counters.add({("a", "", "late"): 5}, now - timedelta(minutes=59))
    counters.add({("a", "", "late"): 70}, now - timedelta(minutes=60))
    trends = Trends(now, ["a", "b"])
    assert trends.in_last_hour("parked", "late") == 12
    assert trends.history("parked", "late", "nothing", minutes=2) == [0, 7]
    assert Trends(now, []).history("late", minutes=3) == [0, 0, 0]
