"""Positions: how far the logs reach is one statement for all partitions, and takes nothing back."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka.positions import LogEnd, Mark, Passed
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks

pytestmark = pytest.mark.django_db
TOPIC, READ, NEW = "orders", ("orders", 0), ("orders", 1)


def rows():
    columns = "partition topic_id next_offset end_offset caught_up_at alarm updated_at".split()
    return list(Watermark.objects.filter(group="g").order_by("partition").values_list(*columns))


def test_ends_of_all_partitions_are_one_statement(django_assert_num_queries):
    marks, now = Watermarks(), database_now()
    later = now + timedelta(seconds=1)
    marks.advance("g", {READ: Mark("id", 7)}, now)
    marks.stop("g", {READ: "a gap"}, now)
    with django_assert_num_queries(1):
        marks.reach("g", {NEW: LogEnd(0, now, None), READ: LogEnd(9, now, None)}, now)
    with django_assert_num_queries(1):
        marks.reach("g", {READ: LogEnd(12, None, None)}, later)
    assert rows() == [(0, "id", 7, 12, now, "", later), (1, "", 0, 0, now, "", now)]


def test_what_quiet_partitions_say_every_second_is_read_and_not_written_again(django_assert_num_queries):
    marks, now = Watermarks(), database_now()
    quiet = {("t", number): LogEnd(7, now, Passed("a", 7, 7)) for number in range(12)}
    marks.reach("g", quiet, now)
    assert set(marks.load("g", ["t"]).values()) == {Mark("a", 0)}
    with django_assert_num_queries(2):
        marks.reach("g", quiet, now)
    behind_a_mark = {("t", 3): LogEnd(9, now, Passed("a", 9, 0))}
    with django_assert_num_queries(3):
        marks.reach("g", {**quiet, **behind_a_mark}, now)
    with django_assert_num_queries(2):
        marks.reach("g", {**quiet, **behind_a_mark}, now)
    assert marks.load("g", ["t"])["t", 3] == Mark("a", 9)
    with django_assert_num_queries(2):  # of the topic as it was before somebody made it anew
        marks.reach("g", {("t", 3): LogEnd(9, now, Passed("b", 12, 0))}, now)


@pytest.mark.parametrize(
    ("row", "passed"),
    [
        (Mark("b", 0), Passed("a", 9, 0)),  # accepted meanwhile: another topic
        (Mark("a", 2), Passed("a", 9, 7)),  # restored meanwhile: 2 to 6 have to be read again
        (Mark("a", 12), Passed("a", 9, 7)),  # read on meanwhile
    ],
)
def test_a_row_that_changed_since_it_was_looked_at_is_not_moved(monkeypatch, row, passed):
    marks, now = Watermarks(), database_now()
    marks.advance("g", {READ: row}, now)
    with monkeypatch.context() as patched:
        patched.setattr(marks, "load", lambda group, topics: {READ: Mark("a", 7)})
        marks.reach("g", {READ: LogEnd(9, now, passed)}, now)
    assert marks.load("g", [TOPIC]) == {READ: row}


@pytest.mark.parametrize(
    ("late", "after"),
    [
        (Mark("id", 3), Mark("id", 7)),  # its successor has read on
        (Mark("old", 9), Mark("id", 7)),  # the topic was made anew, and accepted, in the meantime
        (Mark("", 9), Mark("id", 9)),  # a broker that says no id: it may be the same
        (Mark("id", 9), Mark("id", 9)),
    ],
)
def test_a_zombie_that_finishes_late_moves_no_mark_back_and_into_no_other_topic(late, after):
    marks, now = Watermarks(), database_now()
    marks.advance("g", {READ: Mark("id", 7)}, now)
    marks.advance("g", {READ: late}, now)
    assert marks.load("g", [TOPIC]) == {READ: after}
