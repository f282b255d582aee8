"""Replay batches over letters of the outbox itself: a server that fails some, a channel that is paused, live traffic."""

import threading

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.channels import permits
from outbox.letters.filters import Filter
from outbox.models import DeadLetter, OutboxMessage
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.run import BatchWorker
from outbox.verify import checks
from tests.outbox.replay_batches.scripted_flow import assert_counted, confirm, counts, step
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")


@pytest.fixture
def dead(memory, go):
    """Sixty messages of as many orders that their channel refused; from now on it takes what it is not told to refuse."""
    for number in range(60):
        promise(f"order:{number}")
    memory.always = PERMANENT
    go(memory)
    memory.always = None
    assert DeadLetter.objects.open().count() == 60
    memory.calls.clear()
    return memory


def a_batch(canary=None, rate=10_000):
    batch = requests.draft("requeue", Filter(all=True), ANNA)
    worker = BatchWorker(threading.Event())
    for _ in range(4):
        step(1, worker)
    batch.refresh_from_db()
    confirm(batch, canary=canary, rate=rate)
    return batch, worker


def relay_until(batch, worker, go, handler, *states):
    for _ in range(60):
        step(1, worker)
        go(handler)
        batch.refresh_from_db()
        if batch.state in states:
            return assert_counted(batch)
    raise AssertionError(f"{batch.state}: {batch.note}")


def test_once_the_server_accepts_every_letter_is_resolved_by_its_receipt(dead, go):
    batch, worker = a_batch()
    relay_until(batch, worker, go, dead, "done")
    assert counts(batch) == {"verified": 60}
    assert set(DeadLetter.objects.values_list("status", "evidence")) == {("resolved", "sent, receipt r-1")}
    assert [check.name for check in checks() if not check.ok] == []


@pytest.mark.parametrize("gone", [False, True], ids=["messages", "letters whose messages are gone"])
def test_a_paused_channel_makes_the_batch_wait_and_not_fail(dead, go, gone):
    if gone:
        OutboxMessage.objects.all().delete()
    permits.pause("memory", ANNA, "the provider is down")
    batch, worker = a_batch(canary=0 if gone else None)
    step(5, worker)
    batch.refresh_from_db()
    assert batch.note == "Waits: channel memory is paused: the provider is down."
    assert not OutboxMessage.objects.filter(state="pending").exists()
    permits.resume("memory", ANNA, "it is up")
    relay_until(batch, worker, go, dead, "done")
    assert counts(batch) == {"verified": 60}


def test_without_a_relay_the_letters_stay_requeued_and_the_rest_is_not_let_out(dead):
    batch, worker = a_batch(canary=0)
    step(12, worker)
    batch.refresh_from_db()
    assert (batch.state, counts(batch)) == ("running", {"eligible": 10, "requeued": 50})
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"open", "requeued"}


@pytest.mark.parametrize("rate", [5, 200])
def test_no_more_than_the_window_stands_in_front_of_live_traffic(dead, rate):
    """Ten seconds of its rate; of a server that takes nothing yet, the least: a mail of now would wait behind the rest."""
    _batch, worker = a_batch(canary=0, rate=rate)
    for _ in range(20):
        ReplayBatch.objects.update(tokens=60, tokens_at=database_now(), ramp_from=None)
        step(1, worker)
    assert OutboxMessage.objects.filter(state="pending").count() == 50
