"""The read model of a partition: whole or not at all, never by an owner of the past, never beyond what was said."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest
from django.db import OperationalError, connection, transaction

from config.kafka.positions import LogEnd
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from tests.conftest import TOPIC_ID
from tests.outbox.race import race
from throttler.lanes import read_model
from throttler.lanes.read_model import (
    CountsSnapshot,
    LaneSnapshot,
    PartitionSnapshot,
    is_superseded,
    report_owner,
    take_name,
    write_read_model,
)
from throttler.lanes.state import LaneState
from throttler.messages import moment_of
from throttler.models import CustomerPeriod, Lane, LaneOwner, LanePartition

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 23, 10, 7, 30, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY, DAY_LONG = date(2026, 11, 23), timedelta(days=1)


def lane(customer="c1", backlog=3, first=5, drained=4, seen=7, day=DAY, oldest_us=1_000_000):
    return LaneSnapshot(customer, backlog, first, drained, seen, day, oldest_us, {"tat": [1], "quota": []})


def partition(*lanes, epoch=2, number=0, **more):
    told = {"position": 10, "decided": 12, "totals": {"live": 4, "buffered": 3}, "process": "p1", **more}
    return PartitionSnapshot(number, TOPIC_ID, epoch, lanes=lanes, **told)


def write(found, now=NOW):
    return write_read_model(found, "throttler", "notifications-in", now)


def backlogs():
    return dict(Lane.objects.values_list("customer_id", "backlog"))


def test_a_report_says_lanes_totals_and_position():
    assert write(partition(lane(), reach=LogEnd(15, NOW)))
    row = Lane.objects.get()
    assert (row.customer_id, row.partition, row.topic_id, row.day) == ("c1", 0, TOPIC_ID, DAY)
    assert (row.backlog, row.first, row.drained, row.seen) == (3, 5, 4, 7)
    assert (row.oldest_at, row.limiter, row.updated_at) == (moment_of(1_000_000), {"tat": [1], "quota": []}, NOW)
    assert counters.by_scope("throttler") == {"0": {"live": 4, "buffered": 3}}
    mark = Watermark.objects.get()
    assert (mark.next_offset, mark.topic_id, mark.end_offset, mark.caught_up_at) == (10, TOPIC_ID, 15, NOW)
    held = LanePartition.objects.get()
    assert (held.number, held.epoch, held.position, held.decided, held.updated_at) == (0, 2, 10, 12, NOW)


def test_a_lane_of_the_owner_is_reported_as_it_is():
    state = LaneState("c9")
    state.buffer(7, DAY)
    state.reach(DAY + DAY_LONG)
    state.day = DAY
    state.limiter.tat, state.waits = 5, 1
    found = LaneSnapshot.of(state, None)
    assert found == LaneSnapshot("c9", 1, 7, 6, 7, DAY, None, {"tat": [5], "quota": []}, waits=1, newest=DAY + DAY_LONG)
    assert write(partition(found, read=11))
    row = Lane.objects.get()
    assert (row.oldest_at, row.waits, LanePartition.objects.get().read) == (None, 1, 11)
    assert (row.day, row.newest) == (DAY, DAY + DAY_LONG)
    state.leave(7)
    assert write(partition(LaneSnapshot.of(state, None)))
    row.refresh_from_db()
    assert (row.day, row.newest) == (None, None)


def test_a_lane_that_is_empty_has_no_oldest_message():
    write(partition(lane(backlog=0, oldest_us=5)))
    assert Lane.objects.get().oldest_at is None


def test_the_next_report_changes_the_lanes_it_names_and_no_other():
    write(partition(lane("c1"), lane("c2")))
    assert write(partition(lane("c1", backlog=0, drained=7, day=None, oldest_us=None)), NOW + SECOND)
    assert backlogs() == {"c1": 0, "c2": 3}
    assert Lane.objects.get(customer_id="c1").day is None
    assert Lane.objects.get(customer_id="c2").updated_at == NOW


def test_an_owner_of_the_past_changes_nothing():
    write(partition(lane(), epoch=3))
    late = partition(lane(backlog=9), lane("c2"), epoch=2, position=99, totals={"live": 99}, complete=True)
    late = replace(late, counts=[CountsSnapshot("c1", live=5)], reach=LogEnd(99, None))
    assert not write(late, NOW + SECOND)
    assert not write(replace(late, complete=False), NOW + timedelta(hours=1)), "however long the new one was silent"
    assert backlogs() == {"c1": 3}
    assert counters.totals("throttler") == {"live": 4, "buffered": 3}
    assert (Watermark.objects.get().next_offset, LanePartition.objects.get().epoch) == (10, 3)
    assert not CustomerPeriod.objects.exists()


def test_a_process_whose_name_was_taken_changes_nothing():
    """Who comes back under a name has the generation of the one before."""
    write(partition(lane(), process="before"))
    assert write(partition(lane(backlog=1), process="after", complete=True), NOW + SECOND)
    assert not write(partition(lane(backlog=9), process="before"), NOW + SECOND)
    assert backlogs() == {"c1": 1}


def test_a_process_that_was_frozen_while_it_restored_changes_nothing():
    """It has never reported its lanes before, and has the epoch of whoever has its name now."""
    for process in ("before", "after"):
        take_name("a", True, NOW, process)
    write(partition(lane(backlog=1), process="after", complete=True))
    assert not write(partition(lane(backlog=9), process="before", complete=True), NOW + SECOND)
    assert backlogs() == {"c1": 1}
    take_name("a", True, NOW + SECOND, "last")
    assert write(partition(lane(backlog=2), process="last", complete=True), NOW + SECOND)
    assert backlogs() == {"c1": 2}


def test_a_group_that_was_forgotten_begins_anew_after_a_minute():
    write(partition(lane(), epoch=40))
    again = partition(lane(backlog=1), epoch=1, complete=True)
    assert not write(again, NOW + timedelta(seconds=60))
    assert write(again, NOW + timedelta(seconds=61))
    assert write(partition(epoch=1), NOW + timedelta(seconds=62))
    assert backlogs() == {"c1": 1}


def test_a_group_that_was_forgotten_begins_anew_although_the_clock_went_back():
    write(partition(lane(), epoch=40), NOW + timedelta(hours=1))
    again = partition(lane(backlog=1), epoch=1, complete=True)
    assert not write(again, NOW + timedelta(minutes=59)), "within a minute the one before may be alive"
    assert write(again)
    assert write(partition(epoch=1), NOW + SECOND)
    assert backlogs() == {"c1": 1}
    assert write(partition(lane(backlog=2), epoch=2), NOW + SECOND), (
        "an owner that is newer goes on whatever the clock says"
    )


def test_after_a_restore_waits_what_the_lanes_given_say():
    """The owner before drained c1 and was killed before it could report that."""
    write(partition(lane("c1"), lane("c2"), epoch=2))
    write(partition(lane("c3"), number=1, epoch=2))
    assert write(partition(lane("c2", backlog=2), epoch=3, complete=True), NOW + SECOND)
    assert backlogs() == {"c1": 0, "c2": 2, "c3": 3}
    gone = Lane.objects.get(customer_id="c1")
    assert (gone.drained, gone.day, gone.oldest_at) == (7, None, None)


def test_after_a_database_came_back_from_a_backup_waits_what_the_lanes_given_say():
    write(partition(lane("c1"), lane("c2"), lane("c3")))
    backup = list(Lane.objects.all())
    write(partition(lane("c1", backlog=0), lane("c2", backlog=2)), NOW + SECOND)
    Lane.objects.all().delete()
    Lane.objects.bulk_create(backup)
    assert write(partition(lane("c2", backlog=1), lane("c3"), whole=True), NOW + 2 * SECOND)
    assert backlogs() == {"c1": 0, "c2": 1, "c3": 3}


def test_a_process_whose_name_was_taken_does_not_take_it_back_with_all_its_lanes():
    write(partition(lane(), process="before"))
    write(partition(lane(backlog=1), process="after", complete=True), NOW + SECOND)
    assert not write(partition(lane(backlog=9), process="before", whole=True), NOW + timedelta(hours=1))
    assert backlogs() == {"c1": 1}


def test_lanes_that_were_kept_through_a_rebalance_stay():
    write(partition(lane("c1"), epoch=2))
    assert write(partition(lane("c2"), epoch=3), NOW + SECOND)
    assert backlogs() == {"c1": 3, "c2": 3}


def test_totals_never_go_back_and_a_position_does_with_a_reset():
    write(partition(position=10, totals={"live": 9}))
    assert write(partition(position=8, totals={"live": 7}), NOW + SECOND)
    assert counters.totals("throttler") == {"live": 9}
    assert Watermark.objects.get().next_offset == LanePartition.objects.get().position == 8


def test_a_position_keeps_what_the_next_report_does_not_say_and_loses_its_alarm():
    write(partition(position=10, reach=LogEnd(15, NOW)))
    Watermark.objects.update(alarm="stopped")
    write(partition(position=11), NOW + SECOND)
    mark = Watermark.objects.get()
    assert (mark.next_offset, mark.end_offset, mark.caught_up_at, mark.alarm) == (11, 15, NOW, "")
    write(partition(position=12, reach=LogEnd(16, None)), NOW + 2 * SECOND)
    mark = Watermark.objects.get()
    assert (mark.end_offset, mark.caught_up_at, mark.updated_at) == (16, NOW, NOW + 2 * SECOND)


def test_a_topic_that_was_created_again_begins_at_its_own_position():
    write(partition(position=10))
    write(replace(partition(position=2), topic_id="another"), NOW + SECOND)
    mark = Watermark.objects.get()
    assert (mark.next_offset, mark.topic_id) == (2, "another")


def test_a_partition_is_written_whole_or_not_at_all(monkeypatch):
    def fail(*_args):
        raise RuntimeError("the last statement fails")

    monkeypatch.setattr(counters, "store_totals", fail)
    with pytest.raises(RuntimeError):
        write(partition(lane(), counts=[CountsSnapshot("c1", live=1)]))
    for model in (Lane, LanePartition, Watermark, CustomerPeriod):
        assert not model.objects.exists()


def test_five_minutes_add_up_and_end_with_the_last_backlog():
    write(partition(counts=[CountsSnapshot("c1", 1, 2, 3, 4, backlog=5), CountsSnapshot("c0", live=1)]))
    write(partition(counts=[CountsSnapshot("c1", 10, 20, 30, 40, backlog=0)]), NOW + timedelta(minutes=2))
    write(partition(counts=[CountsSnapshot("c1", 7)]), NOW + timedelta(minutes=3))
    names = ("start__minute", "live", "buffered", "drained", "expired", "backlog")
    rows = CustomerPeriod.objects.filter(customer_id="c1").order_by("start").values_list(*names)
    assert list(rows) == [(5, 11, 22, 33, 44, 0), (10, 7, 0, 0, 0, 0)]


def test_a_report_costs_the_same_for_ten_live_messages_as_for_a_million(django_assert_num_queries):
    write(partition(totals={"live": 1, "read": 1}))
    for live in (11, 1_000_011):
        with django_assert_num_queries(7):  # the transaction, partition, position, and the totals in three
            write(partition(totals={"live": live, "read": live}), NOW + SECOND)


def test_many_lanes_take_a_statement_for_a_thousand(django_assert_max_num_queries, monkeypatch):
    lanes = [lane(f"c{number:04d}") for number in range(2500)]
    with django_assert_max_num_queries(14):
        assert write(partition(*lanes))
    monkeypatch.setattr(read_model, "CHUNK", 1)
    with django_assert_max_num_queries(14):
        assert write(partition(lane("c0001", backlog=1)))
    assert (Lane.objects.count(), backlogs()["c0001"]) == (2500, 1)


def test_customers_whose_names_look_alike_have_a_lane_each():
    names = ["a", "A", "á", "a ", "it's", "back\\slash", "日本"]
    assert write(partition(*[lane(name, backlog=number + 1) for number, name in enumerate(names)]))
    assert backlogs() == {name: number + 1 for number, name in enumerate(names)}


def test_an_owner_reports():
    report_owner("one", {2, 0}, True, NOW)
    report_owner("two", [1], False, NOW)
    report_owner("one", [2], True, NOW + SECOND)
    rows = LaneOwner.objects.order_by("name").values_list("partitions", "transactions", "updated_at")
    assert list(rows) == [([2], True, NOW + SECOND), ([1], False, NOW)]


def test_a_name_says_how_many_processes_have_had_it():
    for process in ("a", "a", "b", "b", "c"):
        take_name("one", True, NOW, process)
        assert report_owner("one", [0], True, NOW, process)
    row = LaneOwner.objects.get()
    assert (row.starts, row.process, row.partitions) == (3, "c", [0])


def test_a_process_whose_name_was_taken_does_not_report_until_a_minute_is_over():
    report_owner("one", [0], True, NOW, "a")
    take_name("one", True, NOW + SECOND, "b")
    row = LaneOwner.objects.values().get()
    assert (row["process"], row["partitions"]) == ("b", [0]), "it takes over a second later"
    assert not report_owner("one", [1], True, NOW + 61 * SECOND, "a")
    assert LaneOwner.objects.values().get() == row
    assert report_owner("one", [1], True, NOW + 62 * SECOND, "a"), "the row is that of a backup"


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_that_write_at_once_the_newer_one_stays():
    """Whichever locks the partition's row first; the other one waits, and then sees the epoch."""
    for number in range(10):
        found = [partition(lane(backlog=epoch), epoch=epoch, number=number, complete=True) for epoch in (2, 3)]
        race(*[partial(write, one) for one in found])
        write(found[1], NOW + SECOND)
        row = Lane.objects.get(partition=number)
        assert (row.backlog, LanePartition.objects.get(pk=number).epoch) == (3, 3)
        assert not write(found[0], NOW + SECOND)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one writer, who keeps all others out")
@pytest.mark.django_db(transaction=True)
def test_who_asks_whether_it_is_superseded_keeps_its_heir_out_until_it_has_spoken():
    """It may be frozen between the question and the letter: nobody takes over in between."""
    write(partition(process="me"))
    with transaction.atomic():
        assert not is_superseded(0, 2, "me", NOW)
        with ThreadPoolExecutor(1) as heir:
            assert heir.submit(is_locked, LanePartition.objects.filter(pk=0)).result()
    assert write(partition(epoch=3, process="heir"))
    with transaction.atomic():
        assert is_superseded(0, 2, "me", NOW)


def is_locked(rows):
    try:
        with transaction.atomic():
            list(rows.select_for_update(nowait=True))
    except OperationalError:
        return True
    finally:
        connection.close()
    return False
