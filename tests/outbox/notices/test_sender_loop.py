"""The loop of the notifier: who looks, how often, and how many subscriptions are served at once."""

import threading
from contextlib import nullcontext

import pytest
from django.contrib.auth.models import User

from config.database.clock import database_now
from outbox.notices import incidents, sender
from outbox.notices.models import Subscription
from outbox.notices.sender import NoticeSender
from tests.outbox.notices.conftest import a_need

pytestmark = pytest.mark.django_db


def test_a_few_subscriptions_are_served_side_by_side_and_none_of_them_twice(subscribe, needed, monkeypatch):
    """One that hangs has one thread; the others wait for one of the four."""
    for number in range(6):
        subscribe(name=f"team {number}")
    needed.append(a_need())
    goes_on, served = threading.Event(), []
    monkeypatch.setattr(sender, "PAUSE", 0.01)
    monkeypatch.setattr(sender, "_deliver_in_thread", lambda pk: served.append(pk) or goes_on.wait(30))
    team = NoticeSender()
    team.tick()
    team.tick()
    assert len(set(served)) == len(served) == sender.AT_ONCE
    goes_on.set()
    team.close()


@pytest.fixture
def served(monkeypatch):
    """Subscriptions in the order in which a thread takes them; each hangs until the test ends."""
    taken, ends = [], threading.Event()
    monkeypatch.setattr(sender, "PAUSE", 0.01)
    monkeypatch.setattr(sender, "_deliver_in_thread", lambda pk: taken.append(pk) or ends.wait(30))
    yield taken
    ends.set()


def someone(name):
    return User.objects.create_user(name, is_staff=True)


FAILS = {"failures": 3, "error": "HTTP 500"}


def test_two_hundred_failing_ones_of_a_viewer_stand_before_nobody(subscribe, needed, served):
    viewer = someone("viewer")
    for number in range(200):
        subscribe(name=f"mine {number}", owner=viewer, **FAILS)
    team = subscribe(name="team")
    needed.append(a_need())
    going = NoticeSender()
    going.tick()
    going.tick()
    assert served[0] == team.pk
    assert len(served) == 2, "one of the team, and one of the viewer"
    going.close()


def test_failing_ones_leave_threads_to_those_that_work(subscribe, needed, served):
    for number in range(20):
        subscribe(name=f"failing {number}", **FAILS)
    needed.append(a_need())
    going = NoticeSender()
    going.tick()
    works = subscribe(name="works", urgency="soon")
    incidents.look(database_now())
    going.tick()
    assert len(served) == sender.FAILING_AT_ONCE + 1
    assert served[-1] == works.pk
    going.close()


def test_people_leave_a_thread_to_the_teams(subscribe, needed, served):
    for number in range(20):
        subscribe(name=f"personal {number}", owner=someone(f"p{number}"))
    needed.append(a_need())
    going = NoticeSender()
    going.tick()
    assert len(served) == sender.PERSONAL_AT_ONCE
    team = subscribe(name="team")
    incidents.look(database_now())
    going.tick()
    assert served[-1] == team.pk
    going.close()


def test_what_cannot_wait_is_next_however_much_was_due_before_it(subscribe, needed, monkeypatch):
    places, steps = [], threading.Semaphore(0)
    monkeypatch.setattr(sender, "PAUSE", 0.01)
    monkeypatch.setattr(sender, "_deliver_in_thread", lambda pk: places.append(pk) or steps.acquire(timeout=30))
    for number in range(50):
        subscribe(name=f"letters {number}", kinds=["failure_group"])
    needed.append(a_need("failure_group", urgency="soon"))
    going = NoticeSender()
    going.tick()
    urgent = subscribe(name="pager", kinds=["worker"])
    needed.append(a_need("worker"))
    incidents.look(database_now())
    steps.release()
    while len(places) == sender.AT_ONCE:
        going.tick()
    assert places[sender.AT_ONCE] == urgent.pk
    steps.release(100)
    going.close()


def test_who_works_comes_before_who_fails_and_a_team_before_a_person(subscribe, needed):
    rows = {
        "person, fails": {"owner": someone("a"), **FAILS},
        "team, fails": FAILS,
        "person": {"owner": someone("b")},
        "team": {},
        "team, can wait": {"kinds": ["failure_group"]},
    }
    for name, more in rows.items():
        subscribe(name=name, **{"kinds": ["worker"], **more})
    needed += [a_need("worker"), a_need("failure_group", urgency="soon")]
    incidents.look(database_now())
    due = Subscription.objects.with_due_notices(database_now())
    assert list(due.values_list("name", flat=True)) == [
        "team", "person", "team, fails", "person, fails", "team, can wait",
    ]  # fmt: skip


def test_only_one_looks_and_not_at_every_tick(monkeypatch):
    looks, mine = [], [True]
    monkeypatch.setattr(sender, "look", lambda now: looks.append(now) or 0)
    monkeypatch.setattr(sender, "only_one", lambda job, seconds: nullcontext(mine[0]))
    team = NoticeSender()
    team.tick()
    team.tick()
    assert len(looks) == 1
    team.looked_at -= sender.LOOK
    mine[0] = False
    team.tick()
    assert len(looks) == 1
    team.close()
