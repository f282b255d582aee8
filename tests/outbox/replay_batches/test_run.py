"""The run: hold, canary, chunks, window, stop rule."""

import threading
from datetime import timedelta

import pytest
from django.db import OperationalError

from config.database.clock import database_now
from config.letters import Refusal
from config.telemetry import metrics
from outbox.letters import levers
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.run import BatchWorker
from tests.exported import exported
from tests.outbox.replay_batches.scripted_flow import (
    ANNA,
    BELA,
    REASON,
    assert_counted,
    confirmed,
    counts,
    fresh,
    letters,
    previewed,
    prove,
    run_until,
    statuses,
    step,
)

pytestmark = pytest.mark.django_db(transaction=True)


# -- the hold ----------------------------------------------------------------------------------------
def test_the_hold_touches_nothing_and_undo_leaves_no_trace(scripted):
    letters(12)
    before = list(DeadLetter.objects.order_by("pk").values())
    batch = previewed()
    requests.confirm(batch.pk, ANNA, REASON)
    step(5)
    batch.refresh_from_db()
    assert batch.state == "holding"
    requests.undo(batch.pk, ANNA)
    step(5)
    batch.refresh_from_db()
    assert (batch.state, counts(batch)) == ("previewed", {"eligible": 12})
    assert list(DeadLetter.objects.order_by("pk").values()) == before
    assert scripted.taken == []
    with pytest.raises(Refusal, match="is previewed already"):
        requests.undo(batch.pk, BELA)


def test_the_hold_ends_by_the_databases_clock(scripted):
    letters(1)
    batch = confirmed(canary=0)
    ReplayBatch.objects.update(hold_until=database_now() + timedelta(seconds=60))
    step(3)
    assert scripted.taken == []
    requests.start_now(batch.pk, ANNA)
    run_until(batch, "done")
    assert scripted.taken == ["K0"]


# -- all the way -------------------------------------------------------------------------------------
def test_a_batch_takes_every_letter_back_once_and_says_so(scripted, settings):
    settings.REPLAY_CHUNK = 30
    letters(130)
    scripted.ineligible["K7"] = "Already sent."
    before = sum(exported(metrics.REPLAY_LETTERS).values())
    batch = run_until(confirmed(canary=None), "done")
    assert counts(batch) == {"verified": 129, "skipped": 1}
    assert sum(exported(metrics.REPLAY_LETTERS).values()) - before == 129
    assert sorted(scripted.taken) == sorted(f"K{n}" for n in range(130) if n != 7)
    assert statuses() == ["resolved"] * 7 + ["open"] + ["resolved"] * 122
    assert OperatorAction.objects.get().rows == 129
    assert batch.finished_at
    assert batch.promoted_at


@pytest.mark.parametrize(("verb", "status"), [("discard", "discarded"), ("resolve", "resolved")])
def test_closing_verbs_close_and_restore_opens_again(verb, status):
    letters(25)
    batch = run_until(confirmed(verb, canary=None), "done")
    assert (counts(batch), set(statuses())) == ({"verified": 25}, {status})
    if verb == "discard":
        run_until(confirmed("restore", canary=None, all=True), "done")
        assert set(statuses()) == {"open"}


# -- the canary --------------------------------------------------------------------------------------
def test_the_rest_waits_until_the_canary_is_judged_good(scripted):
    letters(120, "slow")
    batch = confirmed(canary=None, rate=10_000)
    worker = step(8, fresh())
    batch.refresh_from_db()
    assert (batch.state, batch.canary, len(scripted.taken)) == ("canary", 10, 10)
    prove(*scripted.taken[:9])
    step(8, worker)
    batch.refresh_from_db()
    assert (batch.state, len(scripted.taken)) == ("canary", 10)
    prove(scripted.taken[9])
    run_until(batch, "running", worker=worker)
    assert counts(batch)["verified"] == 10


def test_one_failure_of_the_canary_stops(scripted):
    letters(120)
    scripted.fails.add("K12")
    batch = run_until(confirmed(canary=None), "stopped")
    assert counts(batch)["failed_again"] == 1
    assert batch.note == "The canary failed: fails again."  # at once, not when the rest is to go
    assert len(scripted.taken) == 10
    requests.resume(batch.pk, ANNA)
    assert run_until(batch, "done").verified == 119


def test_a_canary_whose_letters_others_took_is_chosen_anew(scripted):
    ids = letters(20)
    batch = confirmed(canary=2)
    worker = step(1, fresh())
    chosen = list(ReplayItem.objects.filter(canary=True).values_list("letter", flat=True))
    assert len(chosen) == 2
    levers.pull("resolve", chosen, BELA, REASON)
    step(1, worker)
    step(1, worker)
    again = set(ReplayItem.objects.filter(canary=True).values_list("letter", flat=True))
    assert len(again) == 2
    assert not again & set(chosen)
    assert counts(run_until(batch, "done", worker=worker)) == {"verified": 18, "skipped": 2}
    assert len(ids) == 20


# -- the window --------------------------------------------------------------------------------------
def test_no_more_than_the_window_is_out_before_the_first_verdict(scripted):
    letters(200, "slow")
    batch = confirmed(rate=5)
    ReplayBatch.objects.update(rate=5)
    worker = step(1, fresh())
    for _ in range(40):
        ReplayBatch.objects.update(tokens=500, tokens_at=database_now(), ramp_from=None)
        step(1, worker)
    assert len(scripted.taken) == 50  # ten seconds of the rate, but at least 50
    prove(*scripted.taken[:3])
    for _ in range(5):
        ReplayBatch.objects.update(tokens=500, tokens_at=database_now())
        step(1, worker)
    assert len(scripted.taken) == 53
    assert_counted(batch)


def test_of_one_business_key_one_is_out_at_a_time_oldest_first(scripted):
    ids = letters(9, "slow", key=lambda at: f"K{at % 3}")
    batch = confirmed(rate=10_000)
    worker = step(6, fresh())
    assert scripted.taken == ["K0", "K1", "K2"]
    prove("K1")
    step(6, worker)
    assert scripted.taken.count("K1") == 3  # one after the other, each proven
    assert scripted.taken.count("K0") == 1
    taken = ReplayItem.objects.exclude(state="eligible").order_by("letter").values_list("letter", flat=True)
    assert sorted(taken) == sorted([ids[0], ids[1], ids[2], ids[4], ids[7]])
    prove("K0", "K2")
    run_until(batch, "done", worker=worker)


def test_letters_whose_key_is_on_its_way_do_not_hide_those_behind_them(scripted, monkeypatch):
    monkeypatch.setattr("outbox.replay_batches.items.SCANNED", 3)
    letters(9, "slow", key=lambda at: "loud" if at < 8 else "quiet")
    confirmed(rate=10_000)
    step(6)
    assert scripted.taken == ["loud", "quiet"]


# -- the stop rule -----------------------------------------------------------------------------------
def test_a_server_that_fails_every_tenth_is_stopped_with_at_most_the_window_more(scripted):
    letters(600, "slow")
    batch = confirmed(rate=10_000, canary=0)
    prove(*[f"K{n}" for n in range(600) if n % 10])
    prove(*[f"K{n}" for n in range(0, 600, 10)], state="failed_again")
    run_until(batch, "stopped")
    assert "Stopped by its rule" in batch.note
    assert len(scripted.taken) <= 20 + batch.window
    requests.resume(batch.pk, ANNA)
    batch.refresh_from_db()
    assert (batch.state, batch.ring) == ("running", "")
    run_until(batch, "stopped")


@pytest.mark.parametrize("state", ["stopped", "paused"])
def test_the_next_worker_only_judges_what_is_out_of_a_batch_that_stands(scripted, state):
    letters(200, "slow")
    batch = confirmed(rate=10_000, canary=0)
    step(3)
    ReplayBatch.objects.update(state=state)
    taken = list(scripted.taken)
    assert counts(batch)["requeued"] == len(taken) > 20
    prove(*taken[:5], state="failed_again")
    for _ in range(4):
        step(1)  # a new one each time
    assert counts(batch) == {"failed_again": 5, "requeued": len(taken) - 5, "eligible": 200 - len(taken)}
    assert (batch.state, batch.ring, scripted.taken) == (state, "x" * 5, taken)


def test_skipped_letters_are_no_verdicts(scripted):
    ids = letters(60)
    batch = confirmed()
    levers.pull("resolve", ids[:50], BELA, REASON)
    run_until(batch, "done")
    assert counts(batch) == {"verified": 10, "skipped": 50}
    assert batch.ring == "." * 10


def test_a_worker_that_ends_while_its_database_is_away_leaves_the_lease_to_end(monkeypatch):
    stop = threading.Event()
    stop.set()
    worker, asked = BatchWorker(stop), []

    def away(batch_id):
        asked.append(batch_id)
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(worker.steps, "leave", away)
    worker.held.add(7)
    worker.run()
    assert asked == [7]
