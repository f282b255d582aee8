"""Guards that stand behind others: each is asked alone, with what a worker had read before the world changed."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction

from config.database.clock import database_now
from config.database.retry import Stale
from outbox.letters.models import DeadLetter
from outbox.replay_batches import lifecycle, requests, run
from outbox.replay_batches.items import ItemOutcome, write
from outbox.replay_batches.models import LEASE, ReplayBatch, ReplayItem
from tests.outbox.replay_batches.scripted_flow import BELA, confirmed, letters, step

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def held():
    """A batch whose hold is over, as a worker has read it, and the worker's token."""
    letters(5)
    batch, token = confirmed(), uuid.uuid4()
    ReplayBatch.objects.update(lease_token=token, lease_until=database_now() + LEASE)
    batch.refresh_from_db()
    return batch, token


def later(seconds: int):
    return database_now() + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "meanwhile",
    [lambda: {"hold_until": later(30)}, lambda: {"hold_until": None}, lambda: {"state": "previewed"}],
    ids=["confirmed once more", "no hold any more", "undone"],
)
def test_a_hold_that_changed_since_it_was_read_is_not_ended(held, meanwhile, scripted):
    batch, token = held
    ReplayBatch.objects.update(**meanwhile())
    assert lifecycle.begin(batch, token) > 0
    assert ReplayBatch.objects.get().started_at is None
    assert scripted.taken == []


@pytest.mark.parametrize(
    "meanwhile", [{"state": "cancelled"}, {"lease_token": uuid.UUID(int=7)}], ids=["another state", "taken over"]
)
def test_a_batch_that_is_not_what_was_read_is_not_written(held, meanwhile):
    batch, _token = held
    ReplayBatch.objects.update(**meanwhile)
    assert batch.change(note="mine") == 0
    assert ReplayBatch.objects.get().note == ""


def test_an_item_that_was_left_is_not_written_any_more(held):
    batch, _token = held
    item = ReplayItem.objects.of(batch).first()
    ReplayItem.objects.filter(pk=item.pk).update(state="left")
    with pytest.raises(Stale), transaction.atomic():
        write([ItemOutcome(item, "requeued")], database_now())
    assert ReplayItem.objects.get(pk=item.pk).state == "left"


def test_an_item_that_was_judged_since_it_was_read_is_not_put_back(held):
    batch, token = held
    ReplayBatch.objects.update(state="cancelled")
    batch.refresh_from_db()
    judged = ReplayItem.objects.of(batch).first()

    def meanwhile(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("SELECT") and "outbox_replayitem" in sql:
            ReplayItem.objects.filter(pk=judged.pk).update(state="verified")
        return result

    with connection.execute_wrapper(meanwhile):
        assert run.put_back(batch, token) == 4
    assert ReplayItem.objects.get(pk=judged.pk).state == "verified"
    assert ReplayItem.objects.filter(state="left").count() == 4


def test_a_batch_that_was_cancelled_since_it_was_read_does_not_end_as_done(held):
    batch, token = held
    ReplayBatch.objects.update(state="running", eligible=0, verified=5)
    ReplayItem.objects.update(state="verified")

    def meanwhile(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("SELECT") and "outbox_replaybatch" in sql:
            ReplayBatch.objects.filter(state="running").update(state="cancelled")
        return result

    with connection.execute_wrapper(meanwhile):
        assert run.Steps(token).take(batch.pk) > 0
    assert ReplayBatch.objects.get().state == "cancelled"


@pytest.mark.parametrize("meanwhile", [{"state": "paused"}, {"lease_token": uuid.UUID(int=7)}], ids=["going", "lost"])
def test_a_batch_that_is_not_cancelled_or_not_ours_is_not_put_back(held, meanwhile):
    batch, token = held
    ReplayBatch.objects.update(**{"state": "cancelled", **meanwhile})
    assert run.put_back(batch, token) == 0
    assert set(ReplayItem.objects.values_list("state", flat=True)) == {"eligible"}


def test_items_that_were_acted_on_since_they_were_read_are_left(held, scripted):
    """A commit whose answer was lost: the worker comes back with what it had read before."""
    batch, token = held
    ReplayBatch.objects.update(state="running")
    items = list(ReplayItem.objects.all())
    for acted in (5, 0):
        assert run.act_on_chunk(batch, token, items) == acted
        assert len(scripted.taken) == 5
        batch.refresh_from_db()
        assert (batch.verified, batch.skipped) == (5, 0)


def test_proofs_are_counted_by_whoever_holds_the_batch(held):
    """Whoever was frozen past its lease has looked for the effects, too; its successor counts them."""
    batch, token = held
    ReplayBatch.objects.update(state="running", eligible=0, requeued=5)
    ReplayItem.objects.update(state="requeued")
    items = list(ReplayItem.objects.all())
    DeadLetter.objects.update(status="resolved", evidence="there")
    assert run.look_for_proof(batch, uuid.uuid4(), items) == 0
    assert set(ReplayItem.objects.values_list("state", flat=True)) == {"requeued"}
    for judged in (5, 0):  # behind a lost answer with what was read before, too: the stop rule hears each verdict once
        assert run.look_for_proof(batch, token, items) == judged
        batch.refresh_from_db()
        assert (batch.verified, batch.requeued, len(batch.ring)) == (5, 0, 5)


@pytest.mark.parametrize(
    "meanwhile", [{"state": "paused"}, {"lease_token": uuid.UUID(int=7)}], ids=["another state", "taken over"]
)
def test_of_a_batch_that_was_lost_no_chunk_is_written(held, meanwhile):
    batch, _token = held
    item = ReplayItem.objects.of(batch).first()
    ReplayBatch.objects.update(**meanwhile)
    with pytest.raises(run.Lost), transaction.atomic():
        run.settle_chunk(batch, [ItemOutcome(item, "verified")], database_now())
    assert ReplayItem.objects.get(pk=item.pk).state == "eligible"


@pytest.mark.parametrize("how", ["resumed", "another rate"])
def test_after_a_lever_tokens_come_again(how):
    """From 10/s on a chunk waits for more than one of them: they pile up from the first look on."""
    letters(100, "slow")
    batch = confirmed(rate=50)
    step(1)
    ReplayBatch.objects.update(ramp_from=None)
    if how == "resumed":
        requests.pause(batch.pk, BELA)
        requests.resume(batch.pk, BELA)
    else:
        requests.set_rate(batch.pk, BELA, 60)
    now = database_now()
    batch.refresh_from_db()
    assert run.room(batch, now)[1] == 0
    batch.refresh_from_db()
    assert run.room(batch, now + timedelta(seconds=1)) == (0.0, 20)
