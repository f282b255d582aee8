"""What every overflow store promises: idempotent, bounded by the watermark, in order, each offset once."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.throttler.overflow.conftest import DAY, TODAY, lane, offsets, row
from throttler.overflow.django import DjangoStore


def test_a_row_comes_back_as_it_was_stored(store):
    rows = [row(1), row(2, headers=b'[["a","Yg=="]]', expires_us=1_700_000_060_000_001, notification_id="ü'\\")]
    store.store(rows)
    assert store.read([lane()]) == {(0, "c1"): rows}


def test_rows_stored_again_are_left_alone(store):
    store.store([row(1), row(2)])
    store.store([row(2, payload=b"other"), row(3), row(3)])
    found = store.read([lane()])[0, "c1"]
    assert [one.offset for one in found] == [1, 2, 3]
    assert store.count(lane()) == 3


def test_nothing_is_stored_and_nothing_read_of_nothing(store):
    store.store([])
    assert store.read([]) == {}
    assert store.read([lane()]) == {(0, "c1"): []}
    assert store.count(lane()) == 0


def test_a_lane_is_read_behind_its_watermark_and_up_to_its_bound(store):
    store.store([row(offset) for offset in range(10)])
    assert offsets(store.read([lane(drained=2, upto=7)])) == [3, 4, 5, 6, 7]
    assert offsets(store.read([lane(drained=2, upto=7, limit=2)])) == [3, 4]
    assert store.count(lane(drained=2, upto=7, limit=2)) == 5


def test_rows_of_two_days_are_read_by_offset_not_by_day(store):
    store.store([row(offset, day=TODAY if offset % 2 else TODAY - DAY) for offset in range(8)])
    assert offsets(store.read([lane(limit=5)])) == [0, 1, 2, 3, 4]


def test_days_before_that_of_the_lane_are_not_read(store):
    store.store([row(1, day=TODAY - DAY), row(2)])
    assert offsets(store.read([lane(day=TODAY)])) == [2]
    assert store.count(lane(day=TODAY)) == 1


def test_an_offset_stored_under_two_days_counts_once_and_takes_no_place_of_another(store):
    store.store([row(offset, day=day) for offset in range(5) for day in (TODAY, TODAY - DAY)])
    found = store.read([lane(limit=4)])[0, "c1"]
    assert [(one.offset, one.day) for one in found] == [(offset, TODAY - DAY) for offset in range(4)]
    assert store.count(lane()) == 5


def test_lanes_are_kept_apart(store):
    other = "99999999-2222-3333-4444-555555555555"
    store.store([row(1), row(2, "C1"), row(3, "c1 "), row(4, partition=1), row(5, topic_id=other)])
    found = store.read([lane(), lane("C1"), lane("c1 "), lane(partition=1)])
    assert {key: [one.offset for one in rows] for key, rows in found.items()} == {
        (0, "c1"): [1], (0, "C1"): [2], (0, "c1 "): [3], (1, "c1"): [4],
    }  # fmt: skip


def test_many_lanes_each_with_a_limit_of_its_own_come_at_once(store):
    store.store([row(offset, f"c{offset % 150}") for offset in range(1500)])
    found = store.read([lane(f"c{number}", limit=number % 3 + 1) for number in range(150)])
    assert {key[1]: len(rows) for key, rows in found.items()} == {f"c{n}": n % 3 + 1 for n in range(150)}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite does not count the rows it reads")
def test_a_page_reads_its_rows_not_its_lane(transactional_db):
    store = DjangoStore()
    store.store([row(offset, f"c{offset % 20}" if offset < 2000 else "c1") for offset in range(5000)])  # no statistics
    assert rows_read(lambda: store.read([lane(f"c{number}", drained=20, limit=5) for number in range(20)])) <= 20 * 10


def rows_read(work):
    """Rows that the storage hands over, of all queries."""
    if connection.vendor == "mysql":
        before = status("Handler_read_next")
        work()
        return status("Handler_read_next") - before
    with CaptureQueriesContext(connection) as queries:
        work()
    return sum(map(scanned, queries.captured_queries))


def scanned(query):
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + query["sql"])
        ((found,),) = cursor.fetchall()
    plans, rows = [found[0]["Plan"]], 0
    for plan in plans:
        plans += plan.get("Plans", [])
        rows += plan["Actual Rows"] * plan["Actual Loops"] if "Relation Name" in plan else 0
    return rows


@pytest.mark.skipif(connection.vendor != "mysql", reason="only MariaDB and MySQL count temporary tables")
def test_many_lanes_need_no_temporary_table_each(transactional_db):
    store = DjangoStore()
    store.store([row(offset, f"c{offset % 20}") for offset in range(100)])
    before = status("Created_tmp_tables")
    store.read([lane(f"c{number}", limit=3) for number in range(20)])
    assert status("Created_tmp_tables") <= before + 2


def status(name):
    """Of this connection so far; looking makes temporary tables as well."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE %s", [name])
        return int(cursor.fetchone()[1])


def test_a_row_of_a_day_that_is_gone_is_stored_under_the_oldest(store):
    store.store([row(1, day=TODAY - timedelta(days=40)), row(2)])
    assert offsets(store.read([lane(day=store.oldest_day() or TODAY - 50 * DAY)])) == [1, 2]


def test_many_lanes_are_counted_each_in_its_own_range(store):
    store.store([row(offset, f"c{number}") for number in range(250) for offset in range(number % 4)])
    store.store([row(1, "c3", day=TODAY - DAY), row(9, "c3"), row(1, "c3", topic_id="another")])
    lanes = [lane(f"c{number}", drained=0, upto=5) for number in range(251)]
    assert store.counts(lanes) == [max(0, number % 4 - 1) for number in range(250)] + [0]
    assert store.counts([]) == []
