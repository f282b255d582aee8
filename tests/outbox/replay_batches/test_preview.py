"""Counting: the set is pinned in one statement, judged in chunks, and stands for ten minutes."""

import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from config.database.clock import database_now
from config.fields import uuid7_milliseconds
from config.letters import Effect, Refusal
from outbox.groups.models import FailureGroup
from outbox.letters import levers
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction
from outbox.replay_batches import preview, requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.preview import ReadAhead
from tests.outbox.replay_batches.scripted_flow import (
    ANNA,
    BELA,
    REASON,
    confirmed,
    counts,
    draft,
    letters,
    previewed,
    run_until,
    step,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_request_writes_a_filter_and_nothing_else(django_assert_max_num_queries):
    letters(30)
    with django_assert_max_num_queries(4):
        batch = draft()
    assert (batch.state, batch.pinned) == ("counting", 0)
    assert not ReplayItem.objects.exists()


def test_what_arrives_after_the_request_is_not_in_the_set():
    letters(5)
    batch = draft()
    letters(5)
    run_until(batch, "previewed")
    assert counts(batch) == {"eligible": 5}
    letters(5)
    assert counts(batch) == {"eligible": 5}


@pytest.mark.parametrize(("before", "after"), [(60, 0), (0, -60), (60, -60), (-60, 60), (0, 0)])
def test_the_clocks_of_hosts_do_not_move_the_cut_off(clock, before, after):
    clock.ahead(seconds=before)
    letters(2)
    clock.ahead(seconds=0)
    batch = draft()
    clock.ahead(seconds=after)
    letters(3)
    clock.ahead(seconds=0)
    run_until(batch, "previewed")
    assert counts(batch) == {"eligible": 2}


def test_letters_from_before_the_databases_clock_went_back_are_in_the_set():
    in_a_minute = database_now() + timedelta(minutes=1)
    letters(2, now=in_a_minute)
    batch = draft()
    letters(3)
    run_until(batch, "previewed")
    assert counts(batch) == {"eligible": 2}


@pytest.mark.parametrize("seconds", [(60, 0, -60), (-60, 0, 60)])
def test_those_of_one_key_go_one_after_the_other_in_the_order_of_their_burial(scripted, clock, seconds):
    for ahead in seconds:
        clock.ahead(seconds=ahead)
        letters(1, "slow", lambda at: "K")
    clock.ahead(seconds=0)
    scripted.proven["K"] = Effect("resolved", "there")
    batch = confirmed(rate=10_000)
    taken: list[int] = []
    while batch.state != "done":
        step()
        ids = ReplayItem.objects.filter(state="requeued").values("letter")
        taken += DeadLetter.objects.filter(pk__in=ids).exclude(offset__in=taken).values_list("offset", flat=True)
        batch.refresh_from_db()
    assert taken == [0, 1, 2]


def test_a_preview_says_how_many_are_eligible_and_why_others_are_not(scripted, settings):
    settings.REPLAY_CHUNK = 7
    letters(20)
    scripted.ineligible.update(K3="Already sent.", K4="Already sent.", K9="Expired.")
    batch = previewed()
    assert counts(batch) == {"eligible": 17, "skipped": 3}
    assert batch.skipped_why == {"Already sent.": 2, "Expired.": 1}
    assert (batch.kinds, batch.rate) == ([["swift", "test", False]], None)
    assert scripted.taken == []


def test_letters_named_one_by_one_get_their_verdict_whatever_their_state():
    ids = letters(3)
    levers.pull("resolve", [ids[0]], BELA, REASON)
    batch = previewed(ids=[str(pk) for pk in ids])
    assert counts(batch) == {"eligible": 2, "skipped": 1}
    assert batch.skipped_why == {"It is resolved already.": 1}


def test_filters_narrow_the_set():
    first = letters(1)
    time.sleep(0.002)  # ids are ordered by milliseconds
    first += letters(2)
    letters(2, "slow")
    group = FailureGroup.objects.get(source="slow")
    assert previewed(group=group.pk).pinned == previewed(source="slow").pinned == 2
    assert previewed(status="open", source="swift").pinned == 3
    second = datetime.fromtimestamp(uuid7_milliseconds(first[1]) / 1000, UTC).isoformat()
    assert previewed(before=second).pinned == 1
    assert previewed(since=second, source="swift").pinned == 2
    assert previewed(since=second, before="2999-01-01").pinned == 4
    levers.pull("discard", first[:2], BELA, REASON)
    assert previewed("restore", all=True).pinned == 2


@pytest.mark.parametrize(
    ("narrowed", "why"),
    [
        ({}, "nothing says"),
        ({"ids": ["x"]}, "not the id"),
        ({"ids": ["0" * 32]}, "no such dead letter"),
        ({"group": 99}, "no such failure group"),
        ({"source": "nobody"}, "no such source"),
        ({"status": "gone"}, "no such status"),
        ({"before": "yesterday"}, "no ISO time"),
        ({"since": "yesterday"}, "no ISO time"),
        ({"since": "2026-02-12T10:00Z", "before": "2026-02-12T10:00Z"}, "must be earlier than"),
    ],
)
def test_a_filter_of_nothing_is_refused(narrowed, why):
    with pytest.raises(Refusal, match=why):
        requests.draft("requeue", Filter(**narrowed), ANNA)
    assert not ReplayBatch.objects.exists()


def test_an_awaited_source_has_a_rate_unless_somebody_chose_one():
    letters(1, "slow")
    assert previewed().rate == 50
    batch = requests.draft("requeue", Filter(all=True), ANNA, rate=7.5)
    assert run_until(batch, "previewed").rate == 7.5
    assert previewed("discard", all=True).rate is None


def test_pinning_twice_pins_once():
    letters(4)
    batch = draft()
    token = uuid.uuid4()
    ReplayBatch.objects.take(batch.pk, token, database_now())
    assert preview.pin(batch.pk, token) == 4
    assert preview.pin(batch.pk, token) == 0
    assert ReplayItem.objects.count() == 4


def test_a_preview_older_than_ten_minutes_is_counted_again(scripted):
    letters(4)
    batch = previewed()
    ReplayBatch.objects.update(previewed_at=database_now() - timedelta(minutes=11))
    scripted.ineligible["K1"] = "Already sent."
    with pytest.raises(Refusal, match="older than 10 minutes"):
        requests.confirm(batch.pk, ANNA, REASON)
    assert not OperatorAction.objects.exists()
    run_until(batch, "previewed")
    assert (counts(batch), batch.skipped_why) == ({"eligible": 3, "skipped": 1}, {"Already sent.": 1})
    scripted.ineligible.clear()
    ReplayBatch.objects.update(previewed_at=database_now() - timedelta(minutes=11))
    with pytest.raises(Refusal, match="older"):
        requests.confirm(batch.pk, ANNA, REASON)
    run_until(batch, "previewed")
    assert (counts(batch), batch.skipped_why) == ({"eligible": 4}, {})
    requests.confirm(batch.pk, ANNA, REASON)


def test_confirming_takes_a_reason_and_above_a_thousand_the_typed_count(monkeypatch):
    letters(3)
    batch = previewed()
    with pytest.raises(Refusal, match="reason is required"):
        requests.confirm(batch.pk, ANNA, "")
    monkeypatch.setattr(requests, "TYPED_ABOVE", 2)
    for typed in ("", "4", "three"):
        with pytest.raises(Refusal, match="the set has 3 letters"):
            requests.confirm(batch.pk, ANNA, REASON, typed=typed)
    requests.confirm(batch.pk, ANNA, REASON, typed="3")
    with pytest.raises(Refusal, match="of Anna is holding already"):
        requests.confirm(batch.pk, BELA, REASON, typed="3")
    action = OperatorAction.objects.get()
    assert (action.verb, action.rows, action.actor_name, action.reason) == ("requeue", 3, "Anna", REASON)


def test_an_empty_set_cannot_be_confirmed():
    batch = previewed()
    with pytest.raises(Refusal, match="nothing to requeue"):
        requests.confirm(batch.pk, ANNA, REASON)


@pytest.mark.parametrize(
    ("rate", "canary"), [(0, None), (-1, None), (float("nan"), None), (1e9, None), (None, -1), (None, 501)]
)
def test_a_pace_that_makes_no_sense_is_refused(rate, canary):
    letters(1)
    batch = previewed()
    with pytest.raises(Refusal, match="between"):
        requests.confirm(batch.pk, ANNA, REASON, rate=rate, canary=canary)


@pytest.mark.parametrize("chunk", [5, 25])
def test_judging_costs_the_same_whatever_the_chunk(chunk, settings, django_assert_max_num_queries):
    settings.REPLAY_CHUNK = chunk
    letters(60)
    batch = draft()
    token = uuid.uuid4()
    ReplayBatch.objects.take(batch.pk, token, database_now())
    preview.pin(batch.pk, token)
    with django_assert_max_num_queries(12):
        assert preview.judge(batch.pk, token, ReadAhead(preview.portion_behind)) == 2 * chunk
