"""Pause and cancel against a worker in a process of its own, at full speed: what is in hand is finished, and that is all."""

import os
import threading

import pytest

from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests, run
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.run import BatchWorker
from tests.buffer.ledger.conftest import quantities
from tests.outbox.replay_batches.scripted_flow import BELA, assert_counted, confirm, draft, run_until
from tests.outbox.replay_batches.test_killed import bury, in_a_child

pytestmark = pytest.mark.django_db(transaction=True)
LETTERS, CHUNK = 1000, 20


@pytest.fixture(autouse=True)
def scripted(settings):
    """The real flows: this name is that of the fixture which would replace them."""
    settings.REPLAY_CHUNK = CHUNK


def taken():
    return ReplayItem.objects.exclude(state__in=["eligible", "skipped", "left"]).count()


def worker_that_tells(after):
    """A worker at full speed that writes a byte when it has `after` chunks behind it; its id, and where to read."""
    reading, writing = os.pipe()

    def body():
        original, calls = run.settle_chunk, []

        def settled(*arguments, **options):
            original(*arguments, **options)
            calls.append(1)
            if len(calls) == after:
                os.write(writing, b".")  # in the transaction of the chunk, which is not committed

        run.settle_chunk = settled
        # What a cancel between two looks leaves is put back after the next one.
        BatchWorker(threading.Event()).run(until_idle=1.0)

    pid = in_a_child(body)
    os.close(writing)
    return pid, reading


@pytest.mark.parametrize(("lever", "state"), [(requests.pause, "paused"), (requests.cancel, "cancelled")])
def test_what_is_taken_when_the_lever_returns_is_all_that_is_ever_taken(lever, state):
    bury(LETTERS)
    batch = confirm(run_until(draft(), "previewed"))
    pid, reading = worker_that_tells(after=3)
    assert os.read(reading, 1)
    lever(batch.pk, BELA, "wait")
    held = taken()
    _, status = os.waitpid(pid, 0)  # it ends when it has nothing more to do
    os.close(reading)
    assert status == 0
    batch.refresh_from_db()
    assert (batch.state, taken()) == (state, held)
    assert 3 * CHUNK <= held < LETTERS, "it was at work"
    assert held % CHUNK == 0, "a chunk is taken whole"
    assert DeadLetter.objects.filter(status="resolved").count() == -quantities()["A"] == held
    assert ReplayBatch.objects.get().left == (LETTERS - held if state == "cancelled" else 0)
    assert_counted(batch)
