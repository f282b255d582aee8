"""A call whose batch stands still says what it waits for, and leaves the rest to the worker."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from outbox import console_batches
from outbox.console_batches import Standstill
from outbox.letters.models import DeadLetter
from outbox.replay_batches.models import ReplayBatch
from tests.outbox.processes.test_heartbeat import worker
from tests.outbox.replay_batches.conftest import scripted  # noqa: F401 (a fixture)
from tests.outbox.replay_batches.scripted_flow import Effect, confirmed, letters, run_until

pytestmark = pytest.mark.django_db(transaction=True)
PAUSED = "channel email is paused: by Bela"
UNSEEN = "Waits for the effect of 1 letter, which nobody has seen yet"
CASES = {
    "before the first": ("", [], f"Waits: {PAUSED}; 5 to go"),
    "behind its canary": ("while they go", ["--canary", "1"], f"Waits: {PAUSED}; 4 to go"),
    "nobody says": ("never", ["--canary", "1"], f"{UNSEEN}; 4 to go"),
    "another batch": ("another", [], "one batch of a source at a time; 6 to go"),
}


@pytest.mark.parametrize(("when", "options", "said"), CASES.values(), ids=CASES)
def test_a_batch_that_waits_for_others_is_left_with_the_reason(scripted, monkeypatch, when, options, said):  # noqa: F811
    monkeypatch.setattr(console_batches, "HELD_UP", 1.0)
    monkeypatch.setattr(console_batches, "UNSAID", 2.0)
    if when == "another":
        letters(1, "slow")
        other = confirmed("requeue", source="slow")
        run_until(other, "running", "verifying")
        ReplayBatch.objects.filter(pk=other.pk).update(state="paused")
    letters(5, "slow")
    if when == "while they go":
        scripted.on_take.append(lambda: scripted.closed or scripted.closed.append(PAUSED))
    elif not when:
        scripted.closed.append(PAUSED)
    progress = io.StringIO()
    with pytest.raises(CommandError) as left:
        call_command(
            "dead_letters", "requeue", "--source", "slow", "--reason", "the cause is mended", *options,
            stdout=io.StringIO(), stderr=progress,
        )  # fmt: skip
    batch = ReplayBatch.objects.latest("pk")
    assert left.value.returncode == 3
    assert said in str(left.value)
    more = f"Then the worker replay_letters goes on with Replay batch {batch.pk}, as soon as one runs"
    assert more in str(left.value)
    assert (batch.note in progress.getvalue(), batch.lease_token) == (True, None)

    scripted.closed.clear()
    scripted.on_take.clear()
    ReplayBatch.objects.exclude(pk=batch.pk).update(state="cancelled", eligible=0)
    scripted.proven.update({f"K{number}": Effect("resolved", "there") for number in range(6)})
    # The rate climbs from one a second: on a fast machine that is many ticks.
    assert run_until(batch, "done", most=4000).verified == DeadLetter.objects.count()


def test_what_moves_at_its_rate_or_has_just_begun_to_wait_is_not_left(monkeypatch):
    batch = ReplayBatch(note="Waits: for the past", state="running")
    progress = Standstill()
    assert [progress.why_none(batch) for _ in range(2)] == ["", ""]
    progress.at -= 11
    assert progress.why_none(batch) == "Waits: for the past"
    batch.rate = 0.5
    assert progress.why_none(batch) == ""
    progress.at -= 6
    assert progress.why_none(batch) == "Waits: for the past"
    batch.verified += 1
    assert progress.why_none(batch) == ""


def test_where_nobody_says_why_a_minute_is_waited():
    batch, progress = ReplayBatch(verb="requeue", state="running", requeued=1), Standstill()
    assert progress.why_none(batch) == ""
    progress.at -= 11
    assert progress.why_none(batch) == ""
    progress.at -= 50
    assert progress.why_none(batch) == UNSEEN


def test_a_worker_that_reports_goes_on_at_once():
    worker("replay_letters")
    assert "goes on with Replay batch 7 (" in console_batches.left_to_the_worker(ReplayBatch(pk=7), "Waits.")
