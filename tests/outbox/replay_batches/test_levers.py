"""Pause, resume, cancel, rate; and the fence: a worker that lost its batch writes nothing more."""

import threading
import uuid
from datetime import timedelta
from functools import partial
from pkgutil import resolve_name

import pytest
from django.db import OperationalError, connection, transaction

from config.database.clock import database_now
from config.letters import Effect, Refusal
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction
from outbox.replay_batches import lifecycle, requests
from outbox.replay_batches import run as execute
from outbox.replay_batches.models import LEASE, ReplayBatch, ReplayItem
from outbox.replay_batches.run import BatchWorker, Steps
from tests.outbox.race import race
from tests.outbox.replay_batches.scripted_flow import (
    ANNA,
    BELA,
    REASON,
    assert_counted,
    confirm,
    confirmed,
    counts,
    draft,
    letters,
    previewed,
    run_until,
    step,
)

pytestmark = pytest.mark.django_db(transaction=True)


def told(lever, batch, who, *reason):
    """What a lever returns, or the refusal of it."""
    try:
        return lever(batch.pk, who, *reason)
    except Refusal as refusal:
        return refusal


# -- levers ------------------------------------------------------------------------------------------
def test_a_paused_batch_takes_nothing_until_it_is_resumed(scripted):
    letters(100)
    batch = confirmed()
    step(2)
    taken = len(scripted.taken)
    assert 0 < taken < 100
    requests.pause(batch.pk, BELA, "wait")
    step(5)
    assert len(scripted.taken) == taken
    with pytest.raises(Refusal, match="is paused already .Paused by Bela"):
        requests.pause(batch.pk, ANNA)
    requests.resume(batch.pk, ANNA)
    run_until(batch, "done")
    assert len(scripted.taken) == 100
    verbs = list(OperatorAction.objects.order_by("pk").values_list("verb", "result"))
    assert verbs[1:] == [("pause", "running → paused"), ("resume", "paused → running")]


def test_a_batch_that_was_paused_during_its_canary_goes_on_with_it(scripted):
    letters(100, "slow")
    batch = confirmed(canary=5, rate=10_000)
    step(3)
    requests.pause(batch.pk, BELA)
    batch.refresh_from_db()
    assert (batch.state, len(scripted.taken)) == ("paused", 5)
    requests.resume(batch.pk, BELA)
    batch.refresh_from_db()
    assert batch.state == "canary"


def test_cancelling_leaves_the_rest_and_what_is_out_is_still_judged(scripted):
    letters(100, "slow")
    batch = confirmed(rate=10_000)
    step(2)
    taken = list(scripted.taken)
    requests.cancel(batch.pk, BELA, "wrong group")
    run_until(batch, "cancelled")
    step(6)
    assert counts(batch) == {"requeued": len(taken), "left": 100 - len(taken)}
    assert_counted(batch)
    assert batch.note == "Cancelled by Bela: wrong group"

    scripted.proven.update({key: Effect("resolved", "seen") for key in taken})
    step(6)
    assert counts(batch) == {"verified": len(taken), "left": 100 - len(taken)}
    assert not ReplayBatch.objects.in_work().exists()
    assert scripted.taken == taken


@pytest.mark.parametrize("state", ["counting", "previewed", "holding"])
def test_a_draft_is_thrown_away_and_its_letters_stay(state, scripted):
    letters(5)
    batch = draft() if state == "counting" else previewed()
    if state == "holding":
        requests.confirm(batch.pk, ANNA, REASON)
    requests.cancel(batch.pk, ANNA)
    step(4)
    batch.refresh_from_db()
    assert batch.state == "cancelled"
    assert scripted.taken == []
    assert_counted(batch)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"open"}


def test_a_rate_is_changed_while_it_runs(scripted):
    letters(100, "slow")
    batch = confirmed(rate=0.01)
    step(6)
    assert len(scripted.taken) == 1  # the next one is due in 100 s
    requests.set_rate(batch.pk, BELA, 10_000)
    step(3)
    assert len(scripted.taken) > 1
    with pytest.raises(Refusal, match="between"):
        requests.set_rate(batch.pk, BELA, 0)


@pytest.mark.parametrize("lever", [requests.pause, requests.resume, requests.undo, requests.start_now, requests.cancel])
def test_what_is_over_cannot_be_changed(lever):
    letters(1)
    batch = run_until(confirmed(), "done")
    with pytest.raises(Refusal, match="is done already"):
        lever(batch.pk, ANNA)
    with pytest.raises(Refusal, match="no such replay batch"):
        lever(99_999, ANNA)


@pytest.mark.parametrize("state", ["canary", "running", "paused", "stopped", "verifying", "cancelled"])
def test_what_has_begun_cannot_be_undone(state, scripted):
    letters(100, "slow")
    batch = run_until(confirmed(rate=10_000), "running")
    ReplayBatch.objects.update(state=state)
    with pytest.raises(Refusal, match=f"is {state} already"):
        requests.undo(batch.pk, ANNA)
    batch.refresh_from_db()
    assert batch.state == state


# -- the fence ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "meanwhile",
    [{"lease_token": uuid.UUID(int=7)}, {"state": "paused"}, {"state": "cancelled"}, {"state": "stopped"}],
    ids=["taken over", "paused", "cancelled", "stopped"],
)
def test_a_chunk_whose_batch_is_not_ours_any_more_leaves_nothing(scripted, meanwhile):
    letters(10)
    batch, token = confirmed(), uuid.uuid4()
    ReplayBatch.objects.update(state="running", lease_token=token, lease_until=database_now() + LEASE)
    batch.refresh_from_db()
    items = list(ReplayItem.objects.all())
    ReplayBatch.objects.update(**meanwhile)
    assert execute.act_on_chunk(batch, token, items) == 0
    assert scripted.taken == []
    assert set(ReplayItem.objects.values_list("state", flat=True)) == {"eligible"}


def test_a_batch_is_held_by_one_worker():
    letters(1)
    batch = draft()
    now, mine, yours = database_now(), uuid.uuid4(), uuid.uuid4()
    assert ReplayBatch.objects.take(batch.pk, mine, now)
    assert not ReplayBatch.objects.take(batch.pk, yours, now)
    assert ReplayBatch.objects.take(batch.pk, mine, now)
    assert ReplayBatch.objects.take(batch.pk, yours, now + LEASE + timedelta(seconds=1))


# -- races -------------------------------------------------------------------------------------------
def test_of_undo_and_start_one_wins(scripted):
    letters(20)
    for _ in range(8):
        batch = confirmed()
        token = uuid.uuid4()
        ReplayBatch.objects.take(batch.pk, token, database_now())
        batch.refresh_from_db()
        undone, _begun = race(partial(told, requests.undo, batch, ANNA), partial(lifecycle.begin, batch, token))
        batch.refresh_from_db()
        assert batch.state == ("running" if isinstance(undone, Refusal) else "previewed")
        requests.cancel(batch.pk, ANNA)
    assert scripted.taken == []


def test_of_two_people_at_one_button_one_confirms_and_the_other_is_told():
    letters(3)
    for _ in range(5):
        batch = previewed()
        outcomes = race(*(partial(told, requests.confirm, batch, who, REASON) for who in (ANNA, BELA)))
        (refusal,) = [found for found in outcomes if isinstance(found, Refusal)]
        batch.refresh_from_db()
        assert str(refusal) == f"{batch} of {batch.requested_by} is holding already"
        assert OperatorAction.objects.filter(verb="requeue", url__contains=f"/{batch.pk}/").count() == 1
        requests.cancel(batch.pk, ANNA)


def test_two_batches_of_one_source_do_not_both_start():
    letters(3)
    for _ in range(6):
        pair = previewed(), previewed()
        for batch in pair:
            confirm(batch)
        race(*(partial(Steps().take, batch.pk) for batch in pair))
        states = sorted(ReplayBatch.objects.filter(pk__in=[one.pk for one in pair]).values_list("state", flat=True))
        assert states == ["holding", "running"]
        for batch in pair:
            requests.cancel(batch.pk, ANNA)


def test_two_workers_on_one_batch_do_each_letter_once(scripted):
    letters(200)
    batch = confirmed()
    workers = [BatchWorker(threading.Event()) for _ in range(2)]
    for _ in range(12):
        ReplayBatch.objects.update(lease_until=None, lease_token=None)  # as if each lease ran out at once
        race(*(partial(one.steps.take, batch.pk) for one in workers))
    ReplayBatch.objects.update(lease_until=None)
    run_until(batch, "done")
    assert sorted(scripted.taken) == sorted(f"K{n}" for n in range(200))


def test_pausing_waits_for_the_chunk_in_hand_and_no_longer(scripted):
    """The chunk holds the batch's row; whoever pauses gets it next, and nothing is taken after that."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: nobody can wait beside it")
    letters(100)
    batch = confirmed()
    inside, go_on = threading.Event(), threading.Event()

    def hold():
        inside.set()
        assert go_on.wait(30)

    scripted.on_take.append(hold)
    steps = Steps()
    assert steps.take(batch.pk) == 0.0

    def pause():
        inside.wait(30)
        with transaction.atomic():
            threading.Timer(0.2, go_on.set).start()
            return requests.pause(batch.pk, BELA)

    race(partial(steps.take, batch.pk), pause)
    scripted.on_take.clear()
    taken = len(scripted.taken)
    assert taken > 0
    steps.take(batch.pk)
    batch.refresh_from_db()
    assert (batch.state, len(scripted.taken)) == ("paused", taken)
    assert_counted(batch)


@pytest.mark.parametrize("behind", ["preview.pin", "lifecycle.begin", "run._transact", "run.Steps._finish"])
def test_a_worker_whose_commit_goes_unanswered_goes_on_before_its_lease_ends(scripted, monkeypatch, behind):
    """The lease is its own: whoever lives does not wait for it."""
    letters(10)
    batch, lost = draft(), []
    holder, _, name = f"outbox.replay_batches.{behind}".rpartition(".")
    owner = resolve_name(holder)
    original = getattr(owner, name)

    def unanswered(*arguments):
        done = original(*arguments)
        if not lost:
            lost.append(behind)
            raise OperationalError(2013, "Lost connection to server during query")
        return done

    monkeypatch.setattr(owner, name, unanswered)
    worker = BatchWorker(threading.Event())
    worker.run(once=True)
    batch.refresh_from_db()
    confirm(batch)
    worker.run(until_idle=1.0)
    batch.refresh_from_db()
    assert lost
    assert batch.state == "done"
    assert sorted(scripted.taken) == sorted(set(scripted.taken))
    assert len(scripted.taken) == 10
