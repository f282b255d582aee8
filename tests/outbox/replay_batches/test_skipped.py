"""Letters that others moved, that the database refuses, that have to wait; and what proof makes of a batch."""

import pytest
from django.db import OperationalError

from config.letters import Refusal
from config.telemetry.redaction import DOTS
from outbox.letters import levers
from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.outbox.replay_batches.scripted_flow import (
    ANNA,
    BELA,
    REASON,
    confirm,
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


def _breaks_on(scripted, monkeypatch, question, key):
    original = getattr(scripted, question)

    def broken(self, found, now):
        if any(one.business_key == key for one in found):
            raise KeyError(key)
        return original(self, found, now)

    monkeypatch.setattr(scripted, question, broken)


def _sizes_of(scripted, monkeypatch, question):
    """How many letters a flow is asked about, each time."""
    sizes, original = [], getattr(scripted, question)

    def asked(self, found, now):
        sizes.append(len(found))
        return original(self, found, now)

    monkeypatch.setattr(scripted, question, asked)
    return sizes


# -- others ------------------------------------------------------------------------------------------
def test_letters_that_others_moved_meanwhile_are_skipped_with_the_reason(scripted):
    ids = letters(4)
    batch = confirmed()
    levers.pull("resolve", [ids[0]], BELA, REASON)
    levers.pull("discard", [ids[1]], BELA, REASON)
    DeadLetter.objects.filter(pk=ids[2]).delete()
    run_until(batch, "done")
    assert scripted.taken == ["K3"]
    notes = dict(ReplayItem.objects.filter(state="skipped").values_list("letter", "note"))
    assert notes == {
        ids[0]: "It is resolved already.",
        ids[1]: "It is discarded already.",
        ids[2]: "The letter is gone: its month was dropped.",
    }


def test_every_letter_is_judged_again_before_the_deed(scripted):
    letters(3)
    batch = confirmed()
    scripted.ineligible["K1"] = "Already sent."
    run_until(batch, "done")
    assert scripted.taken == ["K0", "K2"]
    assert counts(batch) == {"verified": 2, "skipped": 1}


def test_two_batches_over_one_set_do_one_deed(scripted):
    letters(40)
    first, second = map(confirm, (previewed(), previewed()))
    run_until(first, "done")
    run_until(second, "done")
    assert counts(first) == {"verified": 40}
    assert counts(second) == {"skipped": 40}
    assert second.skipped_why == {f"It is resolved already: {first} of Anna.": 40}
    assert len(scripted.taken) == 40


def test_a_batch_waits_while_another_live_one_has_letters_of_its_source(scripted):
    letters(300, "slow")
    letters(3)
    first, second, third = previewed(source="slow"), previewed(all=True), previewed(source="swift")
    for batch in (first, second, third):
        confirm(batch, rate=10_000)
    worker = step(4, fresh())
    for batch, state in ((first, "running"), (second, "holding"), (third, "done")):
        batch.refresh_from_db()
        assert batch.state == state
    assert f"Held behind {first} of Anna: one batch of a source at a time." == second.note
    requests.pause(first.pk, ANNA)
    step(2, worker)
    second.refresh_from_db()
    assert second.state == "holding"
    requests.cancel(first.pk, ANNA)
    prove(*scripted.taken)
    run_until(second, "running", "verifying", "done", worker=worker)


def test_a_stopped_batch_does_not_go_on_beside_a_live_one(scripted):
    letters(30, "slow")
    stopped = confirmed(rate=10_000)
    ReplayBatch.objects.filter(pk=stopped.pk).update(state="stopped")
    live = confirmed(rate=10_000)
    step(2)
    live.refresh_from_db()
    assert live.state == "running"
    with pytest.raises(Refusal, match=f"{live} of Anna acts on the same source"):
        requests.resume(stopped.pk, ANNA)


# -- what the database refuses -----------------------------------------------------------------------
def test_a_letter_that_the_database_refuses_spares_the_others(scripted):
    letters(64)
    scripted.poison.update({"K5", "K40"})
    batch = run_until(confirmed(), "done")
    assert counts(batch) == {"verified": 62, "refused": 2}
    refused = ReplayItem.objects.filter(state="refused").order_by("letter")
    assert [item.business_key for item in refused] == ["K5", "K40"]
    assert statuses().count("open") == 2


def test_a_flow_that_breaks_on_a_letter_spares_the_others(scripted, monkeypatch):
    letters(30)
    batch = confirmed()
    _breaks_on(scripted, monkeypatch, "judge", "K11")
    run_until(batch, "done")
    assert counts(batch) == {"verified": 29, "refused": 1}


def test_a_preview_names_the_letter_that_its_flow_breaks_on_and_counts_the_others(scripted, monkeypatch):
    letters(30)
    _breaks_on(scripted, monkeypatch, "judge", "K11")
    batch = previewed()
    assert counts(batch) == {"eligible": 29, "skipped": 1}
    assert batch.skipped_why == {"Its flow breaks on it: KeyError: 'K11'.": 1}
    run_until(confirm(batch), "done")
    assert len(scripted.taken) == 29


def test_a_flow_that_breaks_on_an_effect_waits_for_that_letter_alone(scripted, monkeypatch):
    letters(20, "slow")
    _breaks_on(scripted, monkeypatch, "effect", "K11")
    prove(*[f"K{n}" for n in range(20)])
    batch = run_until(confirmed(rate=10_000), "verifying")
    step(4)
    assert counts(batch) == {"verified": 19, "requeued": 1}
    monkeypatch.undo()
    run_until(batch, "done")


def test_a_letter_whose_month_has_no_partition_says_what_to_do(scripted):
    letters(8)
    scripted.on_take.append(lambda: (_ for _ in ()).throw(OperationalError(1526, "no partition for value 202601")))
    batch = run_until(confirmed(), "done", "stopped")
    assert counts(batch) == {"refused": 8}
    assert set(ReplayItem.objects.values_list("note", flat=True)) == {
        "its month has no partition: run rotate_partitions, then try again"
    }


def test_a_batch_whose_step_fails_says_so_and_the_others_go_on(scripted, monkeypatch):
    letters(3, "slow")
    letters(3)
    usual = scripted.backpressure

    def backpressure(self, found, now):
        return usual(self, found, now) if found[0].source == "swift" else {}["gone"]

    monkeypatch.setattr(scripted, "backpressure", backpressure)
    broken, other = confirmed(source="slow", rate=10_000), confirmed(source="swift")
    run_until(other, "done")
    step(2)
    broken.refresh_from_db()
    assert (broken.state, broken.note) == ("running", f"Waits: KeyError: {DOTS}")  # it may be of a payload
    monkeypatch.undo()
    prove("K0", "K1", "K2")
    run_until(broken, "done")
    assert broken.note == ""


def test_a_chunk_holds_no_more_than_may_be_in_memory(scripted, monkeypatch):
    ids = letters(30)
    monkeypatch.setattr("outbox.letters.models.MOST_BYTES", 10)
    DeadLetter.objects.filter(pk__in=ids[:3]).update(payload=b"x" * 9)
    judged, taken = (_sizes_of(scripted, monkeypatch, name) for name in ("judge", "take_back"))
    batch = previewed()
    previews = list(judged)
    run_until(confirm(batch), "done")
    for sizes in (previews, taken):
        assert sizes[:3] == [1, 1, 1]
    # Of two bytes each; beside the letters that a preview judges others are read.
    assert (max(previews), max(taken)) == (2, 5)
    assert len(scripted.taken) == len(set(scripted.taken)) == 30


def test_a_channel_that_is_closed_makes_the_batch_wait_and_say_so(scripted):
    letters(5)
    batch = confirmed()
    scripted.closed.append("channel email is paused: the provider is down")
    worker = step(4, fresh())
    batch.refresh_from_db()
    assert (batch.state, batch.note) == ("running", "Waits: channel email is paused: the provider is down.")
    assert scripted.taken == []
    scripted.closed.clear()
    run_until(batch, "done", worker=worker)
    assert batch.note == ""


# -- proof -------------------------------------------------------------------------------------------
def test_without_proof_a_batch_stays_verifying(scripted):
    letters(30, "slow")
    batch = run_until(confirmed(rate=10_000), "verifying")
    step(6)
    assert counts(batch) == {"requeued": 30}
    prove(*[f"K{n}" for n in range(29)])
    prove("K29", state="failed_again")
    run_until(batch, "done")
    assert counts(batch) == {"verified": 29, "failed_again": 1}


def test_a_message_that_was_cancelled_on_its_way_is_no_failure(scripted):
    letters(2, "slow")
    prove("K0", state="discarded")
    prove("K1")
    batch = run_until(confirmed(rate=10_000), "done")
    assert counts(batch) == {"verified": 1, "skipped": 1}
    assert batch.ring == "."
