"""What a group becomes by its letters is a line of the log, once it is committed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from config.database.clock import database_now
from outbox.groups import counts
from outbox.groups.models import FailureGroup
from outbox.letters.burial import bury
from tests.logged import lines
from tests.outbox.groups.test_arrivals import SOURCE, letter

pytestmark = pytest.mark.django_db


@pytest.fixture
def moves_in(caplog, django_capture_on_commit_callbacks):
    """(group, what it became) of each line of an act."""

    def run(act, *arguments):
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            act(*arguments)
        said = [line for line in lines(caplog) if line["event"] == "groups_moved"]
        assert all(line["groups"] == len(line["group"]) and set(line["source"]) == {SOURCE} for line in said)
        return [sorted(zip(map(int, line["group"]), line["became"], strict=True)) for line in said]

    return run


def buried(moves_in, *letters):
    return moves_in(bury, letters, "g", database_now())


def shifted(moves_in, group, **change):
    return moves_in(counts.shift, {group: counts.Shift(**change)}, database_now())


def test_groups_are_told_when_they_begin_end_and_come_back_and_not_between(moves_in):
    said = buried(moves_in, letter(1), letter(2), letter(3, "worse"))
    first, second = FailureGroup.objects.order_by("pk").values_list("pk", flat=True)
    assert said == [[(first, "new"), (second, "new")]]
    assert buried(moves_in, letter(4)) == []
    (first,) = FailureGroup.objects.filter(open_count=3).values_list("pk", flat=True)
    assert shifted(moves_in, first, open=-1, requeued=1) == []
    assert shifted(moves_in, first, open=-1, closed=1) == []
    assert shifted(moves_in, first, open=-1, requeued=-1, closed=2) == [[(first, "resolved")]]
    assert buried(moves_in, letter(5)) == [[(first, "regressed")]]
    assert shifted(moves_in, first, open=-1, closed=1) == [[(first, "resolved")]]
    assert shifted(moves_in, first, open=1, closed=-1) == [[(first, "open")]]


def test_a_group_whose_rest_is_over_is_told(moves_in):
    buried(moves_in, letter(1))
    now = database_now()
    FailureGroup.objects.update(state="ignored", ignored_until=now - timedelta(seconds=1), owner_name="Ada")
    assert buried(moves_in, letter(2)) == [[(FailureGroup.objects.get().pk, "acknowledged")]]


@pytest.mark.parametrize(
    ("level", "change", "asked"),
    [
        ("WARNING", counts.Shift(open=-1, closed=1), False),
        ("INFO", counts.Shift(open=-1, requeued=1), False),
        ("INFO", counts.Shift(open=-1, closed=1), True),
    ],
)
def test_nobody_asks_for_what_is_not_told(moves_in, caplog, level, change, asked):
    buried(moves_in, letter(1))
    with caplog.at_level(level), CaptureQueriesContext(connection) as queried:
        counts.shift({FailureGroup.objects.get().pk: change}, database_now())
    # The test's own look at the group comes first.
    (_own, *asks) = [
        query["sql"] for query in queried if query["sql"].startswith("SELECT") and "state_since" in query["sql"]
    ]
    assert len(asks) == asked
