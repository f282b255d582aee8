"""Claim, send, settle: once, also when two come, when nobody answers, and when the one who sends dies."""

from __future__ import annotations

import time as time_module
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import partial

import pytest

from config.database.clock import database_now
from config.database.retry import full_jitter
from config.telemetry import metrics
from outbox.flow import Outbox
from outbox.notices import incidents, sender
from outbox.notices.addresses import NoticeOutcome
from outbox.notices.models import LEASE, Notice, Subscription
from outbox.notices.sender import NoticeSender, claim, deliver, open_attempts, settle, words_of
from tests.exported import exported
from tests.outbox.notices.conftest import a_need
from tests.outbox.race import race

pytestmark = pytest.mark.django_db


def look():
    return incidents.look(database_now())


def waited(**by) -> None:
    """Let time pass for all that is stored."""
    span = timedelta(**by)
    for notice in Notice.objects.all():
        moved = {
            name: getattr(notice, name) - span
            for name in ("due_at", "created_at", "tried_at", "sent_at")
            if getattr(notice, name)
        }
        Notice.objects.filter(pk=notice.pk).update(**moved)
    for row in Subscription.objects.exclude(next_try_at=None):
        Subscription.objects.filter(pk=row.pk).update(next_try_at=row.next_try_at - span)
    for row in Subscription.objects.exclude(lease_until=None):
        Subscription.objects.filter(pk=row.pk).update(lease_until=row.lease_until - span)


def states() -> list[str]:
    return list(Notice.objects.order_by("pk").values_list("state", flat=True))


# -- What arrives --------------------------------------------------------------------------------------------
def test_one_notice_with_what_home_says_and_the_way_there(receiver, due, needed):
    row = due(receiver.plain, needs=[a_need(amount=3, unit="messages wait")])
    assert deliver(row.pk)
    (body,) = receiver.bodies
    assert body["title"] == "[Spillway] Dead: worker 7"
    assert "Its process is gone." in body["message"]
    assert "3 messages wait, since" in body["message"]
    assert body["message"].endswith("https://ops.example.com/admin/about/7/")
    assert body["type"] == "failure"
    assert (states(), deliver(row.pk)) == (["sent"], False)
    assert exported(metrics.NOTICES)["sent",] >= 1
    needed.clear()
    look()
    deliver(row.pk)
    assert (receiver.titles[-1], receiver.bodies[-1]["type"]) == ("[Spillway] Over: Dead: worker 7", "success")


def test_what_comes_together_is_one_message(receiver, due):
    row = due(
        receiver.plain, needs=[a_need("failure_group", str(number), "soon", f"Bad {number}") for number in range(30)]
    )
    deliver(row.pk)
    (body,) = receiver.bodies
    assert body["title"] == "[Spillway] 30 things need you"
    assert body["message"].count("• ") == 20
    assert "and 10 more" in body["message"]
    assert "may be a repeat" not in body["message"]
    assert set(states()) == {"sent"}


def test_a_list_of_which_one_line_may_have_come_before_says_so(receiver, due):
    row = due(receiver.plain, needs=[a_need(key="1"), a_need(key="2")])
    Notice.objects.filter(incident__key="2").update(state="unsure", repeat=True)
    deliver(row.pk)
    assert "may be a repeat" in receiver.bodies[0]["message"]


def test_what_is_held_until_the_morning_says_that_it_is_over(receiver, due, needed):
    row = due(
        receiver.plain, quiet_from=time(0), quiet_to=time(23, 59), wakes=False, needs=[a_need(key="1"), a_need(key="2")]
    )
    needed.pop()
    look()
    assert not deliver(row.pk), "it is quiet"
    waited(days=1)
    deliver(row.pk)
    (body,) = receiver.bodies
    assert body["title"] == "[Spillway] 1 thing needs you, 1 is over"
    assert "• Was, and is over: Dead: worker 2" in body["message"]
    assert look() == 0, "its end has been told with it"


def test_an_end_that_nobody_heard_of_before_it_came_back_is_no_news(receiver, due, needed):
    row = due(receiver.plain)
    deliver(row.pk)
    needed.clear()
    look()
    needed.append(a_need())
    look()
    assert not deliver(row.pk)
    assert receiver.titles == ["[Spillway] Dead: worker 7"]
    needed.clear()
    look()
    deliver(row.pk)
    assert receiver.titles[1:] == ["[Spillway] Over: Dead: worker 7"]


def test_nothing_in_a_notice_calls_everybody_or_names_an_address(receiver, subscribe, needed):
    row = subscribe(receiver.slack_shaped)
    title = "Bad <!channel> @everyone of eve@example.com\x1b[31m\u202e"
    needed.append(replace(a_need("failure_group", title=title), why=f"A server said: {title}"))
    look()
    deliver(row.pk)
    text = receiver.bodies[0]["text"]
    for hidden in ("<!channel>", "@everyone", "eve@example.com", "\x1b", "\u202e"):
        assert hidden not in text


def test_times_are_those_of_the_subscription():
    row = Subscription(zone="Asia/Ho_Chi_Minh")
    incident = incidents.Incident(
        kind="worker",
        title="Dead: x",
        why="",
        urgency="now",
        url="/",
        episode=1,
        opened_at=datetime(2026, 3, 2, 20, tzinfo=UTC),
    )
    words = words_of([Notice(incident=incident, phase="opened", episode=1)], row, database_now())
    assert words.body == "Since 03 Mar 03:00 Asia/Ho_Chi_Minh."


# -- What goes wrong -----------------------------------------------------------------------------------------
def test_who_refuses_is_tried_again_later_and_the_page_and_doctor_say_so(receiver, subscribe, needed):
    row = subscribe(receiver.plain)
    receiver.answers = [500]
    needed.append(a_need())
    look()
    deliver(row.pk)
    row.refresh_from_db()
    assert (row.failures, row.error, states()) == (1, "HTTP 500", ["waiting"])
    assert row.pk not in Subscription.objects.with_due_notices(database_now()).values_list("pk", flat=True)
    lines = {name: (ok, words) for name, ok, words in Outbox().diagnose()}
    assert lines["notices"][0] is False
    assert "HTTP 500" in lines["notices"][1]
    waited(seconds=11)
    deliver(row.pk)
    row.refresh_from_db()
    assert (row.failures, row.error, states()) == (0, "", ["sent"])
    assert len(receiver.bodies) == 2


def test_a_notice_that_is_refused_again_and_again_waits_since_the_first_time(receiver, due, django_user_model):
    row = due(receiver.plain)
    receiver.answers += [503, 503]
    assert deliver(row.pk)
    waited(minutes=20)
    Subscription.objects.update(failing_since=database_now() - timedelta(minutes=20))
    assert deliver(row.pk)
    now = database_now()
    oldest = incidents.oldest_unsent(now)
    assert now - oldest > timedelta(minutes=19)
    gone = django_user_model.objects.create(username="gone", is_active=False)
    Subscription.objects.update(owner=gone)
    assert incidents.oldest_unsent(now) is None  # nobody waits for it


def test_the_pause_grows_and_after_a_day_it_is_given_up(subscribe, needed, monkeypatch):
    row = subscribe()
    monkeypatch.setattr(sender, "send", lambda *given, **more: NoticeOutcome(ok=False, error="no"))
    monkeypatch.setattr(sender, "full_jitter", partial(full_jitter, fraction=1.0))
    needed.append(a_need())
    look()
    pauses = []
    for _ in range(9):
        deliver(row.pk)
        row.refresh_from_db()
        pauses.append(round((row.next_try_at - database_now()).total_seconds(), -1))
    assert pauses == [20, 40, 80, 160, 320, 600, 600, 600, 600]
    waited(days=1, seconds=1)
    deliver(row.pk)
    assert states() == ["given_up"]


def test_what_may_have_arrived_is_told_again_after_the_window_and_says_so(receiver, subscribe, needed):
    row = subscribe(receiver.plain)
    receiver.answers = ["hang"]
    needed.append(a_need())
    look()
    deliver(row.pk)
    assert states() == ["unsure"]
    waited(seconds=590)
    assert not deliver(row.pk), "within its window nothing is told twice"
    waited(seconds=11)
    deliver(row.pk)
    assert states() == ["sent"]
    assert "This may be a repeat" in receiver.bodies[1]["message"]


@pytest.mark.django_db(transaction=True)
def test_one_that_hangs_delays_no_other(receiver, subscribe, needed, settings):
    settings.NOTIFY_TIMEOUT_SECONDS = 30.0
    slow = subscribe(receiver.plain, "slow")
    receiver.answers = ["hang"]
    needed.append(a_need())
    going = NoticeSender()
    try:
        until(going, receiver.hanging.is_set)
        quick = subscribe(receiver.slack_shaped, "quick")
        look()
        until(going, lambda: Notice.objects.filter(subscription=quick, state="sent").exists())
        assert states() == ["sending", "sent"]
        receiver.goes_on.set()
        until(going, lambda: not going.going)
    finally:
        receiver.goes_on.set()
        going.close()
    assert states() == ["sent", "sent"]
    assert Subscription.objects.get(pk=slow.pk).failures == 0


def until(going: NoticeSender, sign: Callable[[], bool]) -> None:
    """Rounds until something is so; the test's own time limit ends it otherwise."""
    deadline = time_module.monotonic() + 60
    while not sign():
        assert time_module.monotonic() < deadline
        going.tick()


def test_a_failure_of_one_does_not_stop_its_tests(subscribe):
    row = subscribe()
    now = database_now()
    Subscription.objects.update(failures=3, next_try_at=now + timedelta(hours=1))
    Notice.objects.create(subscription=row, phase="opened", due_at=now, created_at=now)
    assert not Subscription.objects.with_due_notices(now).exists()
    test = Notice.objects.create(subscription=row, phase="test", due_at=now, created_at=now)
    assert Subscription.objects.with_due_notices(now).exists()
    claimed = claim(row.pk, now)
    assert claimed.ids == [test.pk]


# -- Dying on the way ----------------------------------------------------------------------------------------
def taken(row: Subscription):
    claimed = claim(row.pk, database_now())
    assert claimed
    return claimed


def test_one_that_died_before_it_sent_is_told_by_the_next_at_once_and_without_doubt(receiver, due):
    row = due(receiver.plain)
    taken(row)
    assert not deliver(row.pk), "another one holds it"
    waited(seconds=LEASE.total_seconds() + 1)
    look()
    assert deliver(row.pk)
    assert "repeat" not in receiver.bodies[0]["message"]


def test_one_that_died_while_it_sent_is_decided_as_doubtful_and_told_after_the_window(receiver, due):
    row = due(receiver.plain)
    assert open_attempts(taken(row))
    look()
    assert states() == ["sending"], "it may still live"
    waited(seconds=LEASE.total_seconds() + 1)
    look()
    assert states() == ["unsure"]
    assert not deliver(row.pk)
    waited(seconds=600)
    assert deliver(row.pk)
    assert "repeat" in receiver.bodies[0]["message"]


def test_who_comes_too_late_may_still_say_that_it_arrived(due):
    row = due()
    claimed = taken(row)
    open_attempts(claimed)
    waited(seconds=LEASE.total_seconds() + 1)
    look()
    settle(claimed, NoticeOutcome(ok=True), database_now())
    assert states() == ["sent"]


def test_who_lost_its_lease_sends_nothing_and_settles_nothing(due):
    row = due()
    late = taken(row)
    waited(seconds=LEASE.total_seconds() + 1)
    other = taken(row)
    assert not open_attempts(late)
    assert open_attempts(other)
    settle(late, NoticeOutcome(ok=False, error="late"), database_now())
    row.refresh_from_db()
    assert (row.lease_token, states(), row.failures) == (other.token, ["sending"], 0)


def test_an_address_that_cannot_be_read_is_a_failure_that_says_so(subscribe, needed):
    row = subscribe()
    Subscription.objects.update(address="gAAAA-no")
    needed.append(a_need())
    look()
    deliver(row.pk)
    row.refresh_from_db()
    assert "enter it again" in row.error


def test_a_round_looks_serves_and_ends(receiver, subscribe, needed):
    subscribe("file:missing", "lost")
    needed.append(a_need())
    going = NoticeSender(patient=True)
    assert going._look_if_time() == 1
    assert going._look_if_time() == 0, "not before ten seconds are over"
    going.close()


# -- Two at once ---------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_two_notifiers_race_and_each_notice_is_taken_once(subscribe, needed, monkeypatch):
    row = subscribe()
    needed.append(a_need())
    sent: list[str] = []
    monkeypatch.setattr(
        sender,
        "send",
        lambda address, about_to: (
            NoticeOutcome(ok=True) if (words := about_to(False)) and not sent.append(words) else None
        ),
    )
    for number in range(5):
        needed[:] = [a_need(key=str(number))]
        look()
        Notice.objects.filter(phase="resolved").delete()
        sent.clear()
        race(lambda: deliver(row.pk), lambda: deliver(row.pk))
        assert len(sent) == 1


@pytest.mark.django_db(transaction=True)
def test_two_looks_at_once_write_each_notice_once(subscribe, needed):
    subscribe()
    needed.append(a_need())
    look()
    Notice.objects.all().delete()
    race(*[lambda: incidents.plan(database_now())] * 2)
    assert Notice.objects.count() == 1


def test_what_was_decided_meanwhile_is_not_sent(due):
    """All of the claim or nothing: its words were made of all of it."""
    subscription = due(needs=[a_need(key="1"), a_need(key="2")])
    claimed = claim(subscription.pk, database_now())
    Notice.objects.filter(pk=claimed.ids[0]).update(state="given_up")
    assert not open_attempts(claimed)
    assert list(Notice.objects.order_by("pk").values_list("state", flat=True)) == ["given_up", "waiting"]


@pytest.mark.parametrize("outcome", [NoticeOutcome(ok=True), NoticeOutcome(ok=False, error="refused")])
def test_what_another_try_has_taken_meanwhile_is_not_settled(due, outcome):
    subscription = due()
    claimed = claim(subscription.pk, database_now())
    assert open_attempts(claimed)
    Notice.objects.update(token=uuid.uuid4())
    lost = exported(metrics.FENCE_LOST)[()]
    settle(claimed, outcome, database_now())
    assert Notice.objects.get().state == "sending"
    assert exported(metrics.FENCE_LOST)[()] == lost + 1


def test_what_may_have_arrived_stays_so_when_the_next_try_surely_failed(due):
    subscription = due()
    Notice.objects.update(state="unsure", repeat=True)
    claimed = claim(subscription.pk, database_now())
    assert open_attempts(claimed)
    settle(claimed, NoticeOutcome(ok=False, error="refused"), database_now())
    assert Notice.objects.get().state == "unsure"
