"""Groups as letters arrive: made, counted, opened again by recurrence, and never too many of them."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka import Replayed
from outbox.groups import counts
from outbox.groups.counts import MOST_NEW
from outbox.groups.models import FailureGroup, GroupHour, GroupQuota, hour_of
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter

pytestmark = pytest.mark.django_db
SOURCE = "transfer-requests"
State = FailureGroup.State
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def letter(offset, error="bad", revision=0, source=SOURCE, **more):
    record = Replayed("transfer-requests", 0, offset, 1000, b"key", b"{", [])
    return Letter(source, "decode", "invalid_json", error, record, topic_id="t", revision=revision, **more)


def word(number):
    """No digit in it."""
    return ALPHABET[number // 676 % 26] + ALPHABET[number // 26 % 26] + ALPHABET[number % 26]


def put(**changes):
    FailureGroup.objects.update(**changes)


def group():
    return FailureGroup.objects.get()


def test_the_first_letter_makes_a_new_group_with_its_hour():
    now = database_now()
    bury([letter(1, "bad 7"), letter(2, "bad 8")], "g", now)
    found = group()
    assert (found.state, found.state_since, found.title) == ("new", now, "Invalid JSON: bad …")
    assert (found.open_count, found.total_count, found.returned_count, found.requeued_count) == (2, 2, 0, 0)
    assert counts.arrived_by_hour([found.pk], now, 3) == {found.pk: [0, 0, 2]}
    assert counts.arrived_by_hour([found.pk], now + timedelta(hours=1), 3) == {found.pk: [0, 2, 0]}
    assert GroupQuota.objects.get().made == 1


@pytest.mark.parametrize("state", [State.NEW, State.OPEN, State.ACKNOWLEDGED, State.REGRESSED])
def test_an_arrival_leaves_alone_what_is_not_closed(state):
    bury([letter(1)], "g", database_now())
    put(state=state, state_since=None)
    bury([letter(2)], "g", database_now())
    assert (group().state, group().state_since, group().open_count) == (state, None, 2)


def test_a_resolved_group_is_regressed_by_a_new_letter():
    bury([letter(1)], "g", database_now())
    put(state=State.RESOLVED, open_count=0, owner_name="Ada", note="n", ticket="T-1", hint="h")
    now = database_now()
    bury([letter(2)], "g", now)
    found = group()
    assert (found.state, found.state_since, found.open_count, found.total_count) == ("regressed", now, 1, 2)
    assert (found.owner_name, found.note, found.ticket, found.hint) == ("Ada", "n", "T-1", "h")


@pytest.mark.parametrize(("owner", "state"), [("", "open"), ("Ada", "acknowledged")])
def test_what_its_own_replay_brings_back_is_no_regression(owner, state):
    bury([letter(1)], "g", database_now())
    put(state=State.RESOLVED, open_count=0, owner_name=owner)
    bury([letter(1, revision=1)], "g", database_now())
    assert (group().state, group().returned_count) == (state, 1)
    put(state=State.RESOLVED)
    bury([letter(1, revision=2), letter(2)], "g", database_now())
    assert (group().state, group().returned_count) == ("regressed", 2)  # one of the two is new


def test_an_ignored_group_stays_ignored_until_its_time():
    now = database_now()
    bury([letter(1)], "g", now)
    put(state=State.IGNORED, ignored_until=now + timedelta(minutes=1))
    bury([letter(2)], "g", now)
    assert group().state == "ignored"
    assert group().shown_state(now) == "ignored"
    assert group().shown_state(now + timedelta(minutes=1)) == "open"
    bury([letter(3)], "g", now + timedelta(minutes=1))
    assert group().state == "open"


def test_an_ignored_group_is_back_when_its_count_has_doubled():
    now = database_now()
    bury([letter(1), letter(2)], "g", now)
    put(state=State.IGNORED, ignored_total=4, owner_name="Ada")
    bury([letter(3)], "g", now)
    assert group().state == "ignored"
    bury([letter(4)], "g", now)
    assert group().state == "acknowledged"


def test_a_group_that_is_ignored_for_ever_says_nothing():
    bury([letter(1)], "g", database_now())
    put(state=State.IGNORED)
    bury([letter(2)], "g", database_now())
    assert group().state == "ignored"


def test_last_seen_never_goes_back():
    now = database_now()
    bury([letter(1)], "g", now)
    bury([letter(2)], "g", now - timedelta(minutes=5))
    assert group().last_seen == now


def test_a_source_makes_no_more_groups_an_hour_than_it_may():
    now = database_now()
    bury([letter(number, word(number)) for number in range(MOST_NEW - 1)], "g", now)
    bury([letter(1000 + number, word(1000 + number)) for number in range(40)], "g", now)
    assert FailureGroup.objects.count() == MOST_NEW + 1
    other = FailureGroup.objects.get(reason="other")
    assert (other.step, other.open_count, other.state) == ("other", 39, "new")
    assert GroupQuota.objects.get().made == MOST_NEW
    # What is known is counted where it belongs, and another source has its own.
    bury([letter(2000, word(3)), letter(2001, "zzz zzz"), letter(2002, "zzz", source="outbox")], "g", now)
    other.refresh_from_db()
    assert other.open_count == 40
    assert FailureGroup.objects.count() == MOST_NEW + 2
    # In the next hour the cause has a group of its own.
    bury([letter(3000, "zzz zzz")], "g", now + timedelta(hours=1))
    assert FailureGroup.objects.count() == MOST_NEW + 3
    assert DeadLetter.objects.filter(group=other).count() == 40


def test_a_known_group_asks_for_no_quota(django_assert_num_queries):
    bury([letter(1)], "g", database_now())
    GroupQuota.objects.all().delete()
    bury([letter(2), letter(3)], "g", database_now())
    assert not GroupQuota.objects.exists()


def test_hours_and_quotas_are_kept_for_a_month():
    now = database_now()
    bury([letter(1)], "g", now)
    pk = group().pk
    GroupHour.objects.create(group_id=pk, hour=hour_of(now) - counts.KEPT_HOURS - 1, arrived=5)
    GroupHour.objects.create(group_id=pk, hour=hour_of(now) - counts.KEPT_HOURS, arrived=6)
    GroupQuota.objects.create(source="s", hour=hour_of(now) - 2, made=5)
    assert counts.sweep_hours(now) == 2
    assert sorted(GroupHour.objects.values_list("arrived", flat=True)) == [1, 6]
    assert GroupQuota.objects.count() == 1


def test_what_came_and_went_in_this_hour_and_before():
    now = database_now()
    pairs = [(0, 3, 2), (1, 5, 7), (2, 100, 100)]
    GroupHour.objects.bulk_create(
        GroupHour(group_id=number, hour=hour_of(now) - back, arrived=came, closed=went)
        for number in (1, 2) for back, came, went in pairs
    )  # fmt: skip
    assert counts.arrived_in_all(now) == ((6, 10), (4, 14))
