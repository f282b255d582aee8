"""SIGKILL and SIGSTOP, real, at every boundary of a batch: each letter takes effect once, and counts fit.

Workers that are killed at any moment are in `tests/crash/replay`.
"""

import os
import signal
import threading
import traceback
from collections import Counter
from pkgutil import resolve_name

import pytest
from django.db import connections

from buffer.models import InventoryTracking
from config.database.clock import database_now
from config.flows import prove
from outbox import verify
from outbox.bookkeeping import counters
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.messages.filters import MessageFilter
from outbox.models import OperatorAction, OutboxMessage, Resend
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.run import BatchWorker
from tests.buffer.ledger.conftest import paid, quantities, record, stocks, write
from tests.outbox.replay_batches.scripted_flow import ANNA, REASON, assert_counted, draft
from tests.outbox.scripted import promise

pytestmark = pytest.mark.django_db(transaction=True)
LETTERS = int(os.environ.get("KILLED_LETTERS", "400"))
POINTS = {
    "pinned": "outbox.replay_batches.preview._insert_items",  # in the transaction, not committed
    "judged": "outbox.replay_batches.preview.judge",  # committed
    "started": "outbox.replay_batches.lifecycle._started",  # in the transaction
    "begun": "outbox.replay_batches.lifecycle.begin",  # committed
    "taken back": "outbox.replay_batches.subjects.BatchOfLetters.act",  # in the transaction: letters and stock are written
    "settled": "outbox.replay_batches.run.settle_chunk",  # in the transaction: items and counters, too
    "committed": "outbox.replay_batches.run._transact",  # nobody knows
}


@pytest.fixture(autouse=True)
def scripted(settings):
    """The real flows: this name is that of the fixture which would replace them."""
    settings.REPLAY_CHUNK = 50


@pytest.fixture(params=["requeue", "edit"])
def batch(request):
    """Of letters that nobody has looked at yet; an edit sells two of each instead of one."""
    bury(LETTERS)
    if request.param == "requeue":
        return draft()
    two = FieldChange("replace", "$.items[0].quantity", "2", "1")
    return requests.draft("edit", Filter(all=True), ANNA, reason=REASON, change=two)


def bury(number):
    """Letters of sales of a stock that is there by now."""
    for start in range(0, number, 500):
        write(*[record(paid(f"S{n}", A=1)) for n in range(start, min(start + 500, number))])
    assert DeadLetter.objects.open().count() == number
    stocks(A=0)


def in_a_child(body):
    """Fork a process that ends after `body`, or by a signal; its id."""
    connections.close_all()
    pid = os.fork()
    if pid:
        return pid
    try:
        body()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def work():
    BatchWorker(threading.Event()).run(once=True)


def killed_after(place):
    """A worker that is killed right behind the first call that did something."""

    def body():
        holder, _, name = place.rpartition(".")
        owner = resolve_name(holder)
        original = getattr(owner, name)

        def wrapped(*arguments, **options):
            result = original(*arguments, **options)
            if result != 0 or name == "begin":  # which answers how long to wait
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, wrapped)
        work()

    _, status = os.waitpid(in_a_child(body), 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def next_life(batch):
    """What the dead worker held is free at once; a preview is confirmed, and its hold is over."""
    ReplayBatch.objects.update(lease_until=database_now())
    batch.refresh_from_db()
    if batch.state == "previewed":
        requests.confirm(batch.pk, ANNA, REASON, typed=str(batch.eligible), canary=7)
    ReplayBatch.objects.filter(state="holding").update(hold_until=database_now())


def end_well(batch):
    """Without any more trouble it comes to its end, and everything adds up."""
    for _ in range(20):
        next_life(batch)
        _, status = os.waitpid(in_a_child(work), 0)
        assert status == 0
        batch.refresh_from_db()
        if batch.state == "done":
            break
    assert_counted(batch)
    assert (batch.state, batch.pinned, batch.verified) == ("done", LETTERS, LETTERS)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"resolved"}
    assert quantities() == {"A": -LETTERS * (1 + (batch.verb == "edit"))}
    assert InventoryTracking.objects.count() == LETTERS
    assert OperatorAction.objects.filter(verb=batch.verb).count() == 1
    copies = PayloadRevision.objects.values_list("letter", "number")
    assert len(copies) == len(set(copies)) == LETTERS * (batch.verb == "edit")
    assert [check for check in prove()["checks"] if not check["ok"]] == []


def test_a_worker_that_is_killed_at_every_boundary_does_each_letter_once(batch):
    hit = set()
    for point in [*POINTS, "taken back", "settled", "committed"]:
        if point == "started":  # somebody has to see the preview first
            next_life(batch)
            os.waitpid(in_a_child(work), 0)
        next_life(batch)
        if killed_after(POINTS[point]):
            hit.add(point)
    assert hit == set(POINTS)
    end_well(batch)


# -- Workers that are frozen past their lease ----------------------------------------------------------------
# Each stands before the call, outside any transaction, with what it has read.
FROZEN = [
    "outbox.replay_batches.preview.pin",
    "outbox.replay_batches.preview.judge",
    "outbox.replay_batches.lifecycle.begin",
    "outbox.replay_batches.run.act_on_chunk",
    "outbox.replay_batches.run.Steps._finish",
]


def frozen_before(place):
    """The id of a worker that stops before the first such call; None of one that came to its end without any."""

    def body():
        holder, _, name = place.rpartition(".")
        owner = resolve_name(holder)
        original = getattr(owner, name)

        def wrapped(*arguments, **options):
            setattr(owner, name, original)
            os.kill(os.getpid(), signal.SIGSTOP)
            return original(*arguments, **options)

        setattr(owner, name, wrapped)
        work()

    pid = in_a_child(body)
    _, status = os.waitpid(pid, os.WUNTRACED)
    return pid if os.WIFSTOPPED(status) else None


def asleep_before(place, batch):
    """The same of the first worker that comes so far; those before it bring the batch there."""
    for _ in range(20):
        next_life(batch)
        ReplayBatch.objects.update(rate=None, ramp_from=None)
        if pid := frozen_before(place):
            return pid
    raise AssertionError(place)


def test_a_worker_that_is_frozen_past_its_lease_does_nothing_more(batch):
    asleep = [asleep_before(place, batch) for place in FROZEN]
    end_well(batch)
    for pid in asleep:  # they go on with what they had read, and end
        os.kill(pid, signal.SIGCONT)
    for pid in asleep:
        assert os.waitpid(pid, 0)[1] == 0
    end_well(batch)


# -- Messages that are sent again ----------------------------------------------------------------------------
RESENT = 120
SAID = {
    "one is promised": "outbox.delivery.levers._publish_again",  # in the transaction
    "a chunk is promised": "outbox.delivery.levers.resend_these",  # in the transaction: copies and their rows
    "settled": POINTS["settled"],
    "committed": POINTS["committed"],
}


def test_a_worker_that_is_killed_at_every_boundary_sends_each_message_again_once(memory, go, settings):
    settings.REPLAY_CHUNK = 20
    for number in range(RESENT):
        promise(f"order:{number}")
    while go(memory):
        pass
    batch = requests.draft("resend", MessageFilter(since="2020-01-01T00:00:00Z"), ANNA)
    hit = set()
    os.waitpid(in_a_child(work), 0)  # the preview
    for point in [*SAID, *SAID]:
        next_life(batch)
        ReplayBatch.objects.update(rate=None, ramp_from=None)
        if killed_after(SAID[point]):
            hit.add(point)
        go(memory)
    for _ in range(20):
        next_life(batch)
        ReplayBatch.objects.update(rate=None, ramp_from=None)
        os.waitpid(in_a_child(work), 0)
        go(memory)
        batch.refresh_from_db()
        if batch.state == "done":
            break
    assert hit == set(SAID)
    assert_counted(batch)
    assert (batch.state, batch.pinned, batch.verified) == ("done", RESENT, RESENT)
    said = Counter(OutboxMessage.objects.values_list("aggregate", flat=True))
    assert said == {f"order:{number}": 2 for number in range(RESENT)}
    assert memory.repeats == {}
    assert len(memory.accepted) == 2 * RESENT
    assert Resend.objects.count() == counters.totals("outbox")["resent"] == RESENT
    assert [check for check in verify.checks() if not check.ok] == []
