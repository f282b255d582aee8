"""What verify proves of the throttler: each thing that somebody may change breaks the rule that names it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.groups.models import FailureGroup
from outbox.letters.models import BurialKey
from tests.throttler.worked import Worked
from throttler.models import Lane, LanePartition, OverflowMessage
from throttler.overflow.django import DjangoStore
from throttler.verify import _misplaced, checks

pytestmark = pytest.mark.django_db
IN = "throttler: read + replayed = live + buffered + expired_on_arrival + parked + forwarded"
OUT = "throttler: buffered = drained + expired + purged + lost + refused + waiting"
FIT = "throttler: the numbers of every lane fit each other"
STORED = "throttler: every message that waits is in the store"
LETTER = "throttler: every parked record has its letter"
MARK = "throttler: every partition that was read has its watermark"
STOPPED = "throttler: no partition is stopped"
ROWS = "throttler: every partition has its row, and no lane is ahead of it"
GROUPS = "failure groups of throttler count their open and requeued letters"
WAYS_IN = ("live", "buffered", "expired_on_arrival", "parked", "forwarded")
WAYS_OUT = ("drained", "expired", "purged", "lost")
ALSO = {"buffered": {OUT}, "parked": {LETTER}}


@pytest.fixture
def worked():
    return Worked()


def broken():
    return {check.name for check in checks() if not check.ok}


def test_nothing_is_wrong_with_nothing():
    assert not broken()


def test_a_partition_that_has_worked_adds_up(worked):
    assert not broken()
    assert [check.name for check in checks()] == [IN, OUT, FIT, STORED, LETTER, MARK, STOPPED, ROWS, GROUPS]


def counted(name, value):
    FlowCounter.objects.update_or_create(flow="throttler", scope="0", name=name, defaults={"value": value})


def lane_says(**changes):
    return lambda worked: Lane.objects.filter(customer_id="acme").update(**changes)


CHANGES = {
    **{
        f"{name} miscounted": (lambda worked, name=name: counted(name, 99), {IN} | ALSO.get(name, set()))
        for name in WAYS_IN
    },
    **{f"{name} counted twice": (lambda worked, name=name: counted(name, 7), {OUT}) for name in WAYS_OUT},
    "lane emptied": (lambda worked: Lane.objects.filter(customer_id="beta").update(backlog=0), {OUT}),
    "lane deleted": (lambda worked: Lane.objects.filter(customer_id="beta").delete(), {OUT}),
    "lane without a day": (lane_says(day=None), {FIT}),
    "lane drained beyond its rows": (lane_says(drained=9), {FIT, STORED}),
    "more on their way than wait": (lane_says(waits=3), {FIT}),
    "fewer than none on their way": (lane_says(waits=-1), {FIT, STORED}),
    "lane begun after its rows": (lane_says(first=10), {FIT}),
    "lane that has seen what nobody decided": (lane_says(seen=12), {ROWS}),
    "row that nobody buffered": (lambda worked: DjangoStore().store([worked.row("acme", 8)]), {STORED}),
    "letter gone": (lambda worked: BurialKey.objects.all().delete(), {LETTER}),
    "letter too many": (lambda worked: worked.bury(2), {LETTER}),
    "watermark gone": (lambda worked: Watermark.objects.all().delete(), {MARK}),
    "partition stopped": (lambda worked: Watermark.objects.update(alarm="created again"), {STOPPED}),
    "group that miscounts": (lambda worked: FailureGroup.objects.update(open_count=7), {GROUPS}),
    "group resolved with letters": (lambda worked: FailureGroup.objects.update(state="resolved"), {GROUPS}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_somebody_changes_breaks_the_rule_that_names_it(worked, what):
    change, rules = CHANGES[what]
    change(worked)
    assert broken() == rules


@pytest.mark.parametrize("offsets", [(2, 10), (7,)], ids=["outside of (drained, seen]", "under two days"])
def test_rows_of_aborted_attempts_and_drained_ones_and_second_ones_do_not_count(worked, offsets):
    DjangoStore().store([replace(worked.row("acme", at), day=worked.day + timedelta(days=1)) for at in offsets])
    assert not broken()


def test_partitions_that_cancel_out_do_not_hide_each_other(worked):
    Worked(1)
    FlowCounter.objects.filter(scope="0", name="live").update(value=3)
    FlowCounter.objects.filter(scope="1", name="live").update(value=1)
    (found,) = [check for check in checks() if not check.ok]
    assert (found.name, found.expected, found.actual, len(found.rows)) == (IN, 20, 20, 2)


def test_lanes_of_partitions_that_cancel_out_do_not_hide_each_other(worked):
    Worked(1)
    FlowCounter.objects.filter(scope="0", name="drained").update(value=3)
    FlowCounter.objects.filter(scope="1", name="drained").update(value=1)
    (found,) = [check for check in checks() if not check.ok]
    assert (found.name, found.expected, found.actual, len(found.rows)) == (OUT, 12, 12, 2)


def test_a_row_that_is_gone_is_missed(worked):
    OverflowMessage.objects.filter(offset=7).delete()
    (found,) = [check for check in checks() if not check.ok]
    assert (found.name, found.expected, found.actual) == (STORED, 3, 2)
    assert found.rows == [{"customer": "acme", "partition": 0, "waiting": 2, "on their way": 0, "stored": 1}]


def test_rows_on_their_way_to_the_store_are_not_missed(worked):
    OverflowMessage.objects.filter(offset=9).delete()
    Lane.objects.filter(customer_id="acme").update(waits=1)
    assert not broken()
    OverflowMessage.objects.filter(offset=7).delete()
    assert broken() == {STORED}


def test_while_an_owner_reads_again_only_too_many_rows_are_wrong(worked):
    OverflowMessage.objects.filter(offset__in=[7, 9]).delete()
    LanePartition.objects.update(read=7)
    assert not broken()
    DjangoStore().store([worked.row("acme", offset) for offset in (7, 8, 9)])
    assert broken() == {STORED}


def test_a_letter_that_is_not_committed_yet_may_be_missing_or_early(worked):
    worked.bury(12)
    assert not broken()
    BurialKey.objects.all().delete()
    assert broken() == {LETTER}
    LanePartition.objects.update(position=9)
    assert not broken()


def test_a_position_beyond_what_is_committed_is_found(worked):
    mark = Watermark.objects.get()
    place = (mark.topic, 0)
    assert not list(_misplaced([mark], {place: 10}, mark.topic_id))
    assert not list(_misplaced([mark], {place: 11}, mark.topic_id))
    for committed, topic_id in (({place: 9}, mark.topic_id), ({}, mark.topic_id), ({place: 10}, "another")):
        assert list(_misplaced([mark], committed, topic_id))


def test_lanes_are_read_in_pages(worked, monkeypatch):
    monkeypatch.setattr("throttler.verify.CHUNK", 1)
    assert not broken()
    OverflowMessage.objects.filter(customer_id="beta").delete()
    assert broken() == {STORED}


def test_a_partition_without_its_row_is_found(worked):
    LanePartition.objects.all().delete()
    assert ROWS in broken()
    FlowCounter.objects.filter(flow="throttler").delete()
    assert ROWS in broken()  # it still has lanes
