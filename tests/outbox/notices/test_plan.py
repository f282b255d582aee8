"""Incidents begin, flap and end; who is told, of which phase, when; with the time passed in."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest
from django.contrib.auth.models import User

from outbox.notices import incidents
from outbox.notices.incidents import look, not_before, quiet_until, sweep_notices
from outbox.notices.models import KINDS, Incident, Notice, Subscription
from tests.outbox.notices.conftest import a_need
from tests.tree import code

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def told(at: datetime, **state: object) -> list[str]:
    """What is waiting has arrived; its phases."""
    waiting = Notice.objects.filter(state="waiting").order_by("pk")
    phases = [notice.phase for notice in waiting]
    waiting.update(state="sent", sent_at=at, **state)
    return phases


def test_a_matter_is_told_once_and_its_end_once(subscribe, needed):
    subscribe()
    needed.append(a_need())
    look(NOON)
    assert told(NOON) == ["opened"]
    assert look(NOON + MINUTE) == 0
    needed.clear()
    look(NOON + 2 * MINUTE)
    assert told(NOON + 2 * MINUTE) == ["resolved"]
    assert look(NOON + 3 * MINUTE) == 0


def test_its_numbers_do_not_make_it_another(subscribe, needed):
    subscribe()
    needed.append(a_need("failure_group", title="Bad", amount=3, unit="letters"))
    look(NOON)
    needed[:] = [a_need("failure_group", title="Bad", amount=9_000, unit="letters")]
    assert look(NOON + MINUTE) == 0
    assert Incident.objects.get().amount == "9,000 letters"


def test_the_end_is_only_told_to_who_was_told(subscribe, needed):
    subscribe()
    needed.append(a_need())
    look(NOON)
    needed.clear()
    assert look(NOON + MINUTE) == 0, "nobody has heard of it yet: its notice will say that it is over"


def test_what_comes_and_goes_is_a_few_messages_with_the_count(subscribe, needed):
    subscribe()
    phases = []
    for minute in range(0, 20, 2):
        needed[:] = [a_need()]
        look(NOON + minute * MINUTE)
        phases += told(NOON + minute * MINUTE)
        needed.clear()
        look(NOON + (minute + 1) * MINUTE)
        phases += told(NOON + (minute + 1) * MINUTE)
    assert phases == ["opened", "resolved", "returned"]
    assert Incident.objects.get().returns == 9
    look(NOON + 30 * MINUTE)
    assert told(NOON + 30 * MINUTE) == ["settled"]
    needed[:] = [a_need()]
    look(NOON + 31 * MINUTE)
    assert Incident.objects.get().episode == 2
    assert told(NOON + 31 * MINUTE) == ["opened"], "after a window of rest it is news"


def test_that_it_stayed_away_is_told_also_when_nobody_looked_for_hours(subscribe, needed):
    """Else an incident of a service would stay open for ever."""
    subscribe()
    for minute in (0, 2):
        needed[:] = [a_need()]
        look(NOON + minute * MINUTE)
        told(NOON + minute * MINUTE)
        needed.clear()
        look(NOON + (minute + 1) * MINUTE)
        told(NOON + (minute + 1) * MINUTE)
    look(NOON + timedelta(hours=9))
    assert told(NOON + timedelta(hours=9)) == ["settled"]


def test_a_look_that_was_frozen_changes_nothing_of_what_others_have_moved(needed):
    needed.append(a_need())
    look(NOON)
    stale, (need,) = Incident.objects.get(), needed
    Incident.objects.update(episode=2)
    incidents.record_incidents({}, [stale], NOON + MINUTE)
    assert Incident.objects.get().over_at is None, "it has seen the end of the episode before"
    stale.episode, stale.over_at = 2, NOON
    incidents._refresh(stale, need, NOON + MINUTE)
    assert Incident.objects.get().returns == 0, "another has seen that it came back"


def test_no_address_of_a_person_leaves(needed):
    """A pause and a failure group quote what a mail server said, and that often is an address."""
    needed.append(replace(a_need(title="Refused: ada@example.com"), why="No ada@example.com here."))
    look(NOON)
    incident = Incident.objects.get()
    assert (incident.title, incident.why) == ("Refused: <address>", "No <address> here.")


def test_what_can_wait_is_not_reminded_of(subscribe, needed):
    subscribe()
    needed.append(a_need(urgency="soon"))
    look(NOON)
    told(NOON)
    assert look(NOON + timedelta(hours=9)) == 0


def test_what_cannot_wait_is_reminded_of(subscribe, needed, settings):
    subscribe()
    needed.append(a_need())
    look(NOON)
    told(NOON)
    assert look(NOON + timedelta(hours=3, minutes=59)) == 0
    assert look(NOON + timedelta(hours=4)) == 1
    assert look(NOON + timedelta(hours=4, minutes=1)) == 0, "the first reminder has not gone yet"
    assert told(NOON + timedelta(hours=4)) == ["reminded"]
    assert look(NOON + timedelta(hours=5)) == 0
    look(NOON + timedelta(hours=8))
    assert Notice.objects.latest("pk").number == 2
    settings.NOTIFY_REMIND_SECONDS = 0
    told(NOON + timedelta(hours=8))
    assert look(NOON + timedelta(hours=20)) == 0


def test_only_what_somebody_subscribed_to(subscribe, needed):
    subscribe(name="urgent", urgency="now")
    subscribe(name="letters", kinds=["failure_group"])
    needed += [a_need("worker"), a_need("failure_group", "1", "soon"), a_need("runway", "t", "watch")]
    look(NOON)
    pairs = set(Notice.objects.values_list("subscription__name", "incident__kind"))
    assert pairs == {("urgent", "worker"), ("letters", "failure_group")}
    needed[1:2] = [a_need("failure_group", "1", "now")]
    look(NOON + MINUTE)
    assert Notice.objects.filter(subscription__name="urgent").count() == 2, "it cannot wait any more"


def test_who_may_not_log_in_any_more_is_told_nothing(subscribe, needed):
    anna = User.objects.create_user("anna", is_staff=True)
    subscribe(owner=anna)
    needed.append(a_need())
    User.objects.update(is_active=False)
    assert look(NOON) == 0
    User.objects.update(is_active=True)
    assert look(NOON) == 1


# -- When ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("at", "until"),
    [
        (datetime(2026, 3, 2, 20, 59, tzinfo=UTC), None),
        (datetime(2026, 3, 2, 21, 0, tzinfo=UTC), datetime(2026, 3, 3, 6, 0, tzinfo=UTC)),
        (datetime(2026, 3, 3, 5, 59, tzinfo=UTC), datetime(2026, 3, 3, 6, 0, tzinfo=UTC)),
        (datetime(2026, 3, 3, 6, 0, tzinfo=UTC), None),
        # The clocks go forward in this night: their end comes an hour earlier.
        (datetime(2026, 3, 28, 22, 0, tzinfo=UTC), datetime(2026, 3, 29, 5, 0, tzinfo=UTC)),
    ],
)
def test_quiet_hours_go_by_the_clock_of_their_zone(at, until):
    row = Subscription(quiet_from=time(22), quiet_to=time(7), zone="Europe/Berlin")
    assert quiet_until(row, at) == until


@pytest.mark.parametrize(
    ("at", "until"),
    [
        (datetime(2026, 10, 25, 0, 15, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),  # 02:15, summer time
        (datetime(2026, 10, 25, 0, 45, tzinfo=UTC), None),
        (datetime(2026, 10, 25, 1, 15, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),  # 02:15 once more
        (datetime(2026, 10, 25, 1, 30, tzinfo=UTC), None),
    ],
)
def test_quiet_hours_that_end_in_the_hour_that_comes_twice_end_behind_now(at, until):
    row = Subscription(quiet_from=time(22), quiet_to=time(2, 30), zone="Europe/Berlin")
    assert quiet_until(row, at) == until


def test_two_who_look_at_the_same_time_write_each_notice_once(subscribe, needed, monkeypatch):
    """Neither has seen what the other one is about to write."""
    subscribe()
    needed.append(a_need())
    monkeypatch.setattr(incidents, "phases_to_tell", lambda *_: [("opened", 0)])
    look(NOON)
    look(NOON)
    assert Notice.objects.count() == 1


def test_quiet_hours_within_a_day_and_none():
    assert quiet_until(Subscription(quiet_from=time(11), quiet_to=time(13)), NOON) == NOON + timedelta(hours=1)
    assert quiet_until(Subscription(), NOON) is None


def test_what_cannot_wait_wakes_unless_somebody_says_otherwise():
    row = Subscription(quiet_from=time(11), quiet_to=time(13), digest_minutes=60)
    assert not_before(row, "now", NOON) == NOON
    assert not_before(row, "soon", NOON) == NOON + timedelta(hours=1)
    row.wakes = False
    assert not_before(row, "now", NOON) == NOON + timedelta(hours=1)


def test_a_digest_comes_at_the_full_span_and_not_in_quiet_hours():
    row = Subscription(digest_minutes=15)
    assert not_before(row, "soon", NOON + MINUTE) == NOON + 15 * MINUTE
    assert not_before(row, "soon", NOON) == NOON + 15 * MINUTE
    row.quiet_from, row.quiet_to = time(12, 10), time(14)
    assert not_before(row, "soon", NOON + MINUTE) == NOON + timedelta(hours=2)


# -- Bounded -------------------------------------------------------------------------------------------------
def test_what_is_settled_and_old_is_swept_and_what_waits_is_not(subscribe, needed, settings):
    subscribe()
    needed += [a_need(key="1"), a_need(key="2")]
    look(NOON)
    Notice.objects.filter(incident__key="1").update(state="sent", sent_at=NOON)
    needed.clear()
    look(NOON + MINUTE)
    Notice.objects.filter(phase="resolved").update(state="sent")
    late = NOON + timedelta(days=settings.NOTIFY_RETENTION_DAYS, hours=1)
    assert sweep_notices(late) == 3
    assert list(Notice.objects.values_list("incident__key", "state")) == [("2", "waiting")]
    assert sweep_notices(late) == 0


def test_what_waits_for_who_may_not_log_in_is_swept_when_it_is_old(subscribe, needed, settings):
    owner = User.objects.create_user("ada", is_staff=True)
    subscribe(name="hers", owner=owner)
    subscribe(name="team")
    needed.append(a_need())
    look(NOON)
    late = NOON + timedelta(days=settings.NOTIFY_RETENTION_DAYS, hours=1)
    assert sweep_notices(late) == 0
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert (sweep_notices(NOON + MINUTE), sweep_notices(late)) == (0, 1)
    assert [notice.subscription.name for notice in Notice.objects.all()] == ["team"]

    Notice.objects.update(state="sent", sent_at=NOON)
    assert sweep_notices(late) == 1, "settled, while its incident goes on"
    needed.clear()
    look(NOON + MINUTE)
    sweep_notices(late)
    assert not Notice.objects.exists()
    assert not Incident.objects.exists()


def test_a_look_asks_as_much_of_many_matters_as_of_few(subscribe, needed, django_assert_num_queries):
    subscribe()
    needed.append(a_need())
    look(NOON)
    with django_assert_num_queries(10) as few:
        look(NOON + MINUTE)
    needed += [a_need(key=str(number)) for number in range(50)]
    look(NOON + MINUTE)
    with django_assert_num_queries(len(few)):
        look(NOON + 2 * MINUTE)


# -- The same as home ----------------------------------------------------------------------------------------
def test_every_need_of_home_says_what_it_is_about():
    """Whatever home shows, somebody can be told of: it has a kind that is offered, and a key, or parts that have one."""
    found = []
    for module in code():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Need":
                found.append((module.name, {word.arg: word.value for word in node.keywords}))
    assert len(found) > 15
    for name, words in found:
        assert "kind" in words, name
        assert words["kind"].value in KINDS, name
        assert {"key", "parts"} & set(words), name
    assert {words["kind"].value for _name, words in found} == set(KINDS)
