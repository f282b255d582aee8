"""A server that fails every tenth mail: the canary and the stop rule hold, also when the worker is restarted all the time."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox import verify
from outbox.channels import permits
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from outbox.replay_batches import requests
from outbox.replay_batches.models import LEASE, ReplayBatch, ReplayItem
from outbox.replay_batches.run import BatchWorker
from tests.outbox.replay_batches.scripted_flow import ANNA, REASON, counts, step
from tests.outbox.scenarios.conftest import LETTERS

pytestmark = pytest.mark.django_db(transaction=True)
RATE = 5.0  # a second: a window of fifty


@pytest.fixture
def dead(shop):
    """Orders whose mails were refused once; from now on every tenth try is."""
    shop.sells(LETTERS)
    shop.server_refuses()
    shop.relay()
    shop.server_accepts()
    shop.server_fails_every_tenth()
    assert DeadLetter.objects.open().count() == LETTERS
    return shop


def confirmed(shop, canary=None, rate=RATE):
    requests.draft("requeue", Filter(source="outbox"), ANNA)
    batch = shop.count()
    return requests.confirm(batch.pk, ANNA, REASON, typed=str(batch.eligible), canary=canary, rate=rate)


def tries():
    """Letters that were taken back, whatever became of them."""
    return ReplayItem.objects.exclude(state__in=["eligible", "skipped"]).count()


def faults():
    return [check.name for check in verify.checks() if not check.ok]


@pytest.mark.parametrize("new_worker", [False, True], ids=["one worker", "a new worker each step"])
def test_the_canary_stops_it_with_ten_letters_out_and_then_the_rule_with_a_window_more(dead, new_worker):
    batch = dead.work(confirmed(dead), "stopped", new_worker=new_worker)
    assert batch.note.startswith("The canary failed: RCPT: 550 5.7.1 Not this one")
    assert tries() == batch.canary == 10
    requests.resume(batch.pk, ANNA)
    before = tries()
    dead.work(batch, "stopped", new_worker=new_worker)
    assert batch.note.startswith("Stopped by its rule: ")
    assert len(batch.ring) >= 20
    assert batch.window == 50
    assert tries() - before <= 20 + batch.window
    for _ in range(4):  # nobody takes more of a stopped batch, also not the next worker
        step(1)
        dead.relay()
    dead.work(batch, "stopped")
    assert counts(batch)["eligible"] == LETTERS - tries()
    assert faults() == []


def test_a_killed_worker_leaves_canary_ring_and_window_to_the_next_one(dead):
    batch = confirmed(dead, rate=10_000)
    ReplayBatch.objects.update(hold_until=database_now())
    killed = BatchWorker(threading.Event())
    step(3, killed)  # the canary is out, and nobody gives the batch back
    assert tries() == 10
    step(5)
    assert tries() == 10  # it is still leased
    ReplayBatch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    dead.work(batch, "stopped", new_worker=True)
    assert (batch.canary, tries()) == (10, 10)
    assert timedelta(minutes=1) > LEASE


def test_a_paused_channel_makes_it_wait_and_a_resumed_one_go_on(dead):
    dead.server_accepts()
    permits.pause("email", Operator("Anna"), "the provider is down")
    batch = confirmed(dead, rate=10_000)
    ReplayBatch.objects.update(hold_until=database_now())
    for _ in range(5):
        step(1)
        dead.relay()
    batch.refresh_from_db()
    assert (batch.state, tries()) == ("canary", 0)
    assert batch.note == "Waits: channel email is paused: the provider is down."
    permits.resume("email", Operator("Anna"), "it is up")
    dead.work(batch, "done")
    assert counts(batch) == {"verified": LETTERS}


@pytest.mark.parametrize(("lever", "state"), [(requests.pause, "paused"), (requests.cancel, "cancelled")])
def test_after_pause_and_cancel_nothing_more_is_taken(dead, lever, state):
    dead.server_accepts()
    batch = confirmed(dead, canary=0, rate=10_000)
    ReplayBatch.objects.update(hold_until=database_now())
    step(2, dead.worker)
    taken = tries()
    assert 0 < taken < LETTERS
    lever(batch.pk, ANNA)
    for _ in range(6):
        step(1, dead.worker)
        dead.relay()
    batch.refresh_from_db()
    moved = counts(batch)
    assert (batch.state, moved["verified"]) == (state, taken)
    assert moved.get("eligible", 0) + moved.get("left", 0) == LETTERS - taken


def test_a_fresh_order_has_at_most_the_window_of_a_replay_in_front_of_it(dead):
    dead.server_accepts()
    batch = confirmed(dead, canary=0)
    ReplayBatch.objects.update(hold_until=database_now())
    for _ in range(12):  # with no relay: everything that the window lets out is out
        ReplayBatch.objects.update(tokens=LETTERS, tokens_at=database_now(), ramp_from=None)
        step(1, dead.worker)
    batch.refresh_from_db()
    assert batch.window == 50
    in_front = set(OutboxMessage.objects.pending().values_list("pk", flat=True))
    assert len(in_front) == batch.window
    (order,) = dead.sells()
    dead.sends(batch.window + 1)
    assert order.user_email in [mail["to"] for mail in dead.sink.accepted]
