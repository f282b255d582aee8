"""The loop of the notifier: who looks, how often, and how many subscriptions are served at once."""

import threading
from contextlib import nullcontext

import pytest

from outbox.alerts import sender
from outbox.alerts.sender import NoticeSender
from tests.outbox.alerts.conftest import a_need

pytestmark = pytest.mark.django_db


def test_a_few_subscriptions_are_served_side_by_side_and_none_of_them_twice(subscribe, needed, monkeypatch):
    """One that hangs has one thread; the others wait for one of the four."""
    for number in range(6):
        subscribe(name=f"team {number}")
    needed.append(a_need())
    goes_on, served = threading.Event(), []
    monkeypatch.setattr(sender, "PAUSE", 0.01)
    monkeypatch.setattr(sender, "_serve_in_thread", lambda pk: served.append(pk) or goes_on.wait(30))
    team = NoticeSender()
    team.tick()
    team.tick()
    assert len(set(served)) == len(served) == sender.AT_ONCE
    goes_on.set()
    team.close()


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
