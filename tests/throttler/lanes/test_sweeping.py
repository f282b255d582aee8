"""What is swept of the read model, and what stays."""

from datetime import timedelta

import pytest
from django.db import connection

from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowMinute
from throttler.lanes.read_model import report_owner, sweep
from throttler.models import CustomerPeriod, Lane, LaneOwner
from throttler.tasks import sweep_mirror

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def now():
    return database_now()


def test_a_lane_that_has_been_empty_for_an_hour_goes(now):
    for name, backlog, age in (("old", 0, 61), ("waits", 1, 600), ("new", 0, 59)):
        numbers = {"first": 1, "drained": 1, "seen": 1, "partition": 0}
        Lane.objects.create(customer_id=name, backlog=backlog, updated_at=now - age * MINUTE, **numbers)
    assert sweep(now) == 1
    assert set(Lane.objects.values_list("customer_id", flat=True)) == {"waits", "new"}


def test_the_hourly_task_sweeps():
    numbers = {"first": 1, "drained": 1, "seen": 1, "partition": 0}
    Lane.objects.create(customer_id="old", backlog=0, updated_at=database_now() - 61 * MINUTE, **numbers)
    assert sweep_mirror() == "1 rows swept"
    assert not Lane.objects.exists()


def test_counts_per_minute_are_kept_for_a_day_and_those_of_other_flows_are_left(now):
    minute = counters.minute_of(now)
    rows = [("throttler", minute - 1441), ("throttler", minute - 1440), ("outbox", minute - 9000)]
    FlowMinute.objects.bulk_create(FlowMinute(flow=flow, name="read", minute=at) for flow, at in rows)
    assert sweep(now) == 1
    assert sorted(FlowMinute.objects.values_list("flow", "minute")) == sorted(rows[1:])


def test_five_minutes_are_kept_for_a_week(now):
    for days in (6, 8):
        CustomerPeriod.objects.create(customer_id="c", partition=0, start=now - timedelta(days=days))
    assert sweep(now) == 1
    assert CustomerPeriod.objects.get().start == now - timedelta(days=6)


def test_an_owner_goes_when_others_report_its_partitions(now):
    old = now - timedelta(days=2)
    report_owner("retired", [], True, old)
    report_owner("replaced", [0], True, old)
    report_owner("last", [1], True, old)
    report_owner("works", [0], True, now)
    assert sweep(now) == 2
    assert set(LaneOwner.objects.values_list("name", flat=True)) == {"last", "works"}


def test_an_owner_that_reports_while_it_is_swept_stays(now):
    report_owner("slept", [], True, now - timedelta(days=2))

    def meanwhile(execute, sql, *rest):
        if sql.startswith("DELETE"):
            LaneOwner.objects.update(updated_at=now)
        return execute(sql, *rest)

    with connection.execute_wrapper(meanwhile):
        assert sweep(now) == 0
    assert LaneOwner.objects.get().name == "slept"
