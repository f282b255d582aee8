"""A day of the overflow buffer goes only when nobody can still read from it."""

from datetime import UTC, datetime, timedelta

import pytest

from config.partitions import Keep
from config.partitions.rotation import driver_for
from tests.throttler.overflow.conftest import TODAY, row
from throttler.models import Lane, LaneOwner, LanePartition, OverflowMessage
from throttler.overflow.django import DjangoStore
from throttler.partitioned import OVERFLOW, keep_what_waits

pytestmark = pytest.mark.django_db(transaction=True)
OLD = TODAY - timedelta(days=2)
PARTITION = OVERFLOW.partition(OLD)
NOW = datetime.now(UTC)
BEFORE = datetime.combine(OLD, datetime.min.time(), UTC)


def waits(day, at=NOW, backlog=1):
    return Lane.objects.create(
        customer_id="c1", partition=0, backlog=backlog, first=1, drained=0, seen=9, day=day, updated_at=at
    )


def owner(name="one", at=NOW, partitions=(0,)):
    LaneOwner.objects.create(name=name, updated_at=at, partitions=list(partitions))


def judge():
    keep_what_waits("default", OVERFLOW, PARTITION)


def partition(at):
    LanePartition.objects.create(number=4, updated_at=at, epoch=1, position=0, decided=0, read=0)


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        (lambda: (owner(), waits(OLD)), "c1 has had messages waiting"),
        (lambda: (owner(), waits(None)), "c1 has had messages waiting in partition 0 since an unknown day"),
        (lambda: (owner(), waits(TODAY, at=BEFORE)), "c1 was last reported"),
        (lambda: (owner(), partition(BEFORE)), "partition 4 was last reported"),  # its owner cannot write the rest
        (lambda: owner(at=BEFORE), "owner one last reported"),
    ],
    ids=[
        "waits since then",
        "waits since nobody knows when",
        "lane before it ended",
        "partition before it ended",
        "owner before it ended",
    ],
)
def test_a_day_that_somebody_may_still_read_is_kept(reported, why):
    reported()
    with pytest.raises(Keep, match=why):
        judge()


def test_a_partition_that_was_reported_since_lets_it_go():
    owner(), partition(NOW)
    judge()


def test_a_lane_that_waits_since_a_later_day_or_no_more_lets_it_go():
    owner()
    waits(TODAY).delete()
    waits(TODAY)
    judge()
    Lane.objects.update(day=OLD, backlog=0)
    judge()


def test_an_owner_whose_partitions_others_report_does_not():
    owner("gone", at=BEFORE, partitions=[0, 1])
    owner("new", partitions=[0])
    with pytest.raises(Keep, match="owner gone last reported"):
        judge()
    owner("newer", partitions=[1])
    judge()


def test_rows_of_which_no_owner_ever_reported_are_kept():
    judge()
    DjangoStore().store([row(1, day=OLD)])
    with pytest.raises(Keep, match="no owner"):
        judge()


def test_a_drop_asks_and_then_takes_the_whole_day_and_no_other(monkeypatch):
    monkeypatch.setattr("config.partitions.drivers.CHUNK", 2)
    DjangoStore().store([row(offset, f"c{offset}", day=day) for offset in range(5) for day in (OLD, TODAY)])
    driver = driver_for(OVERFLOW, "default")
    found = next(one for one in driver.existing() if one.holds(OLD))
    owner()
    waits(OLD)
    with pytest.raises(Keep):
        driver.drop(found)
    assert OverflowMessage.objects.count() == 10
    Lane.objects.all().delete()
    try:
        driver.drop(found)
        assert set(OverflowMessage.objects.values_list("day", flat=True)) == {TODAY}
        assert OverflowMessage.objects.count() == 5
    finally:
        if found.name not in {one.name for one in driver.existing()}:
            restore(driver, found)


def restore(driver, partition):
    """On MySQL partitions are added at the end alone: there the table goes on without its oldest day."""
    if driver.connection.vendor == "postgresql":
        driver.create(partition)
