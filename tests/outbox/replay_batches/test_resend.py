"""A batch that sends messages again: judged one by one, a copy each at most, and proof by the receipt of the copy."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from outbox import verify
from outbox.bookkeeping import counters
from outbox.channels.handlers import Outcome
from outbox.channels.models import ChannelState
from outbox.delivery import levers
from outbox.delivery.levers import LATELY_SAID, cancel, resend
from outbox.messages.filters import MessageFilter
from outbox.models import OperatorAction, OutboxMessage, ReplayBatch, ReplayItem, Resend
from outbox.replay_batches import requests
from outbox.replay_batches.subjects import MESSAGES
from tests.logged import lines
from tests.outbox.replay_batches.scripted_flow import confirm, counts, run_until, step
from tests.outbox.scripted import PERMANENT, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")
LONG_AGO = "2020-01-01T00:00:00Z"
LATER = timedelta(hours=25)


def sent(number: int, memory, go) -> list[uuid.UUID]:
    """So many messages that were accepted, each of an order of its own, oldest first."""
    start = OutboxMessage.objects.count()
    ids = [promise(f"order:{start + at}") for at in range(number)]
    while go(memory):
        pass
    return ids


def test_a_chunk_is_one_line_that_names_its_new_messages_and_one_that_names_those_it_was_made_of(memory, go, caplog):
    ids = sent(3, memory, go)
    confirmed()
    caplog.clear()
    with caplog.at_level("INFO"):
        step(3)
    said = [line for line in lines(caplog) if line["event"] in ("messages_published", "replay_chunk_settled")]
    published, settled = sorted(said, key=lambda line: line["event"])
    assert "message_published" not in caplog.text
    copies = dict(Resend.objects.values_list("message_id", "resent_from"))
    assert [copies[uuid.UUID(pk)] for pk in published["message_id"]] == ids
    for line in (published, settled):
        assert (line["aggregate"], line["order_id"]) == ([f"order:{at}" for at in range(3)], ["0", "1", "2"])
    assert (published["messages"], settled["message_id"]) == (3, list(map(str, ids)))
    assert (settled["became"], "letter_id" in settled) == (["requeued"] * 3, False)


def previewed(**narrowed) -> ReplayBatch:
    chosen = MessageFilter(**(narrowed or {"since": LONG_AGO}))
    return run_until(requests.draft("resend", chosen, ANNA), "previewed")


def confirmed(*, canary: int = 0, **narrowed) -> ReplayBatch:
    return confirm(previewed(**narrowed), canary=canary, rate=10_000)


def carried_out(batch: ReplayBatch, memory, go, *states: str) -> ReplayBatch:
    """Steps of the worker and rounds of the relay by turns."""
    for _ in range(100):
        batch.refresh_from_db()
        if batch.state in (states or ("done",)):
            return batch
        step()
        go(memory)
    raise AssertionError(f"{batch.state}: {batch.note}")


def assert_whole() -> None:
    assert [check for check in verify.checks() if not check.ok] == []


def copies_of(pk: uuid.UUID) -> list[uuid.UUID]:
    return list(Resend.objects.of([pk]).values_list("message_id", flat=True))


def test_each_is_said_again_once_after_a_canary_and_proven_by_its_receipt(memory, go):
    ids = sent(30, memory, go)
    batch = confirmed(canary=3)
    step(2)
    assert ReplayItem.objects.filter(state="requeued").count() == 3  # the rest waits until these are accepted
    carried_out(batch, memory, go)
    assert counts(batch) == {"verified": 30}
    assert Counter(one.aggregate for one in map(message, memory.accepted)) == {f"order:{n}": 2 for n in range(30)}
    for item in ReplayItem.objects.all():
        copy = Resend.objects.get(pk=item.successor)
        assert (copy.resent_from, copy.batch, copy.readdressed) == (item.letter, batch.pk, False)
        assert message(copy.pk).payload == message(item.letter).payload
        assert item.note == "sent, receipt r-1"
    assert [copies_of(pk) != [] for pk in ids] == [True] * 30
    assert counters.totals("outbox")["resent"] == 30
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.rows, action.result) == ("resend", 30, "30 messages to resend")
    assert_whole()


@pytest.mark.parametrize("way", ["batch", "command"])
def test_a_copy_stands_behind_all_of_its_aggregate_although_the_hosts_clock_is_behind(memory, go, clock, way):
    clock.ahead(seconds=60)
    (pk,) = sent(1, memory, go)
    waiting = promise("order:0")
    clock.ahead(seconds=-60)
    if way == "batch":
        batch = confirmed(ids=[str(pk)])
    else:
        run(str(pk), "--reason", "it never came", "--detach")
        batch = ReplayBatch.objects.get()
    while not (copies := copies_of(pk)):
        step()
    assert [pk < waiting, [waiting] < copies] == [True, True]
    carried_out(batch, memory, go)
    assert memory.accepted == [pk, waiting, *copies]
    assert_whole()


@pytest.mark.parametrize(("before", "after"), [(60, 0), (0, -60), (60, -60), (-60, 60)])
def test_the_clocks_of_hosts_do_not_move_the_cut_off(memory, go, clock, before, after):
    clock.ahead(seconds=before)
    sent(2, memory, go)
    clock.ahead(seconds=0)
    batch = requests.draft("resend", MessageFilter(since=LONG_AGO), ANNA)
    clock.ahead(seconds=after)
    sent(3, memory, go)
    clock.ahead(seconds=0)
    assert run_until(batch, "previewed").pinned == 2


def test_the_preview_says_which_are_refused_and_why(memory, go, monkeypatch):
    ids = sent(8, memory, go)
    for pk, state in zip(ids, ("dead_lettered", "expired", "cancelled", "uncertain"), strict=False):
        OutboxMessage.objects.filter(pk=pk).update(state=state, sent_at=None)
    monkeypatch.setattr(
        memory, "screen", lambda all_: {one.id: Outcome("permanent", "suppressed: bounced") for one in all_ if one.id == ids[4]}
    )  # fmt: skip
    resend(ids[5], ANNA, "it never came")
    batch = previewed(state="", since=LONG_AGO)
    assert batch.skipped_why == {
        "It is a dead letter: requeue that one.": 1,
        "It expired before it was sent.": 1,
        "It was cancelled.": 1,
        "Nobody knows yet whether it was sent: settle it first.": 1,
        "Suppressed: bounced. Lift that, or send it again alone to another address.": 1,
        "It is being sent again already.": 1,
        "It is not sent yet.": 1,  # the copy
    }
    assert (batch.eligible, batch.pinned) == (2, 9)
    go(memory)
    assert previewed(ids=[str(ids[5])]).skipped_why == {LATELY_SAID: 1}


def test_a_channel_that_is_gone_and_a_payload_that_is_none_are_refused(memory, go):
    strange, broken = sent(2, memory, go)
    OutboxMessage.objects.filter(pk=strange).update(channel="gone")
    OutboxMessage.objects.filter(pk=broken).update(payload='{"never": true}')
    batch = previewed()
    assert batch.eligible == 0
    assert sorted(batch.skipped_why) == [
        "It could not be sent: payload: never.", "There is no channel gone any more.",
    ]  # fmt: skip
    with pytest.raises(Refusal, match="there is nothing to resend"):
        confirm(batch)


def test_a_day_that_is_dropped_meanwhile_is_skipped(memory, go):
    ids = sent(3, memory, go)
    batch = confirmed()
    OutboxMessage.objects.filter(pk=ids[0]).delete()
    carried_out(batch, memory, go)
    assert counts(batch) == {"verified": 2, "skipped": 1}
    assert ReplayBatch.objects.get().skipped_why == {MESSAGES.gone: 1}


def test_of_a_message_and_its_copy_one_is_sent_again(memory, go, settings):
    (first,) = sent(1, memory, go)
    copy = resend(first, ANNA, "it never came")
    go(memory)
    Resend.objects.update(created_at=database_now() - LATER)
    settings.REPLAY_CHUNK = 1  # the second is judged when the first has its copy
    batch = carried_out(confirmed(), memory, go)
    assert counts(batch) == {"verified": 1, "skipped": 1}
    assert len(copies_of(first)) == 2
    Resend.objects.update(created_at=database_now() - LATER)
    settings.REPLAY_CHUNK = 500  # now both in one
    both = previewed(ids=[str(first), str(copy)])
    assert (both.eligible, both.skipped_why) == (1, {LATELY_SAID: 1})
    assert counts(carried_out(confirm(both, rate=10_000), memory, go))["verified"] == 1
    assert len(copies_of(first)) == 3
    assert_whole()


@pytest.mark.parametrize("second_look", ["of before", "of after"])
def test_whoever_is_faster_between_the_judgement_and_the_deed_wins(memory, go, monkeypatch, second_look):
    first, other = sent(2, memory, go)
    batch = confirmed()
    families = levers._families

    def late(ids):
        """Behind its judgement somebody sends the first one again; for the deed it may read what was before that."""
        known = families(ids)
        if not Resend.objects.exists() and ReplayBatch.objects.get().state == "running":
            monkeypatch.setattr(levers, "_families", families)
            resend(first, Operator("Bela"), "they called")
            if second_look == "of before":
                monkeypatch.setattr(levers, "_families", lambda ids: known)
        return known

    monkeypatch.setattr(levers, "_families", late)
    step()
    step()
    item = ReplayItem.objects.get(letter=first)
    assert (item.state, item.note) == ("skipped", "Somebody was faster.")
    assert ReplayItem.objects.get(letter=other).state == "requeued"
    assert len(copies_of(first)) == 1
    monkeypatch.setattr(levers, "_families", families)
    carried_out(batch, memory, go)
    assert_whole()


def test_the_table_itself_takes_no_second_copy_of_a_batch(memory, go):
    (pk,) = sent(1, memory, go)
    carried_out(confirmed(), memory, go)
    row = Resend.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Resend.objects.create(message_id=uuid.uuid4(), resent_from=pk, batch=row.batch, created_at=row.created_at)
    for _ in range(2):  # a person may as often as there is a reason
        Resend.objects.create(message_id=uuid.uuid4(), resent_from=pk, created_at=row.created_at)


def test_copies_that_fail_stop_it_and_one_that_is_cancelled_does_not(memory, go):
    sent(3, memory, go)
    batch = confirmed(canary=2)
    step(2)
    memory.always = PERMANENT
    carried_out(batch, memory, go, "stopped")
    assert "The canary failed: no such mailbox" in batch.note
    assert counts(batch) == {"failed_again": 2, "eligible": 1}
    memory.always = None
    requests.resume(batch.pk, ANNA)
    step(2)
    item = ReplayItem.objects.get(state="requeued")
    cancel([item.successor], ANNA, "they called off")
    carried_out(batch, memory, go)
    assert counts(batch) == {"failed_again": 2, "skipped": 1}
    assert ReplayItem.objects.get(pk=item.pk).successor == item.successor
    assert_whole()


def test_it_waits_while_its_channel_is_paused(memory, go):
    sent(2, memory, go)
    batch = confirmed()
    ChannelState.objects.update(paused=True, pause_reason="the provider is away")
    step(3)
    batch.refresh_from_db()
    assert batch.note == "Waits: channel memory is paused: the provider is away."
    assert not Resend.objects.exists()
    ChannelState.objects.update(paused=False)
    carried_out(batch, memory, go)
    assert counts(batch) == {"verified": 2}


def test_its_rate_is_that_of_its_channels(memory, go, install):
    sent(1, memory, go)
    assert previewed().rate == 50
    memory.per_second = 7
    assert previewed().rate == 7


def test_a_copy_whose_day_was_dropped_before_anybody_looked_is_refused(memory, go):
    sent(1, memory, go)
    batch = confirmed()
    step(2)
    OutboxMessage.objects.filter(pk=Resend.objects.get().pk).delete()
    carried_out(batch, memory, go)
    assert counts(batch) == {"refused": 1}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "nothing says which messages"),
        ({"state": "sent"}, "nothing says which messages"),
        ({"since": "soon"}, "no ISO time"),
        ({"since": LONG_AGO, "before": LONG_AGO}, "the end must be after the start"),
        ({"since": LONG_AGO, "state": "gone"}, "no such state"),
        ({"since": LONG_AGO, "channel": "pigeon"}, r"pigeon: no such channel \(known: memory\)"),
        ({"ids": ["x"]}, "x: not the id of a message"),
        ({"ids": [str(uuid.UUID(int=7))]}, "no such message"),
        ({"ids": ["x"] * 10_001}, "10,001 messages by id"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(memory, given, problem):
    with pytest.raises(Refusal, match=problem):
        requests.draft("resend", MessageFilter(**given), ANNA)
    assert not ReplayBatch.objects.exists()


def test_a_filter_takes_its_time_its_channel_and_its_event_and_says_so(memory, go):
    old, new = promise("order:1"), promise("order:2", event_type="order.refunded")
    go(memory)
    now = f"{database_now() + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
    chosen = MessageFilter(state="sent", channel="memory", event_type="order.paid", since=LONG_AGO, before=now)
    assert (
        chosen.words()
        == f"sent messages of memory, order.paid written from 2020-01-01 00:00 UTC to {now[:10]} {now[11:16]} UTC"
    )
    assert set(chosen.rows().values_list("pk", flat=True)) == {old}
    assert set(MessageFilter(since=LONG_AGO).rows().values_list("pk", flat=True)) == {old, new}
    assert not MessageFilter(since=now).rows().exists()
    assert not MessageFilter(since=LONG_AGO, channel="other").rows().exists()
    assert MessageFilter.of(chosen.stored()) == chosen


def test_verify_misses_a_copy_that_no_item_has_and_an_item_without_its_copy(memory, go):
    sent(2, memory, go)
    carried_out(confirmed(), memory, go)
    row = Resend.objects.first()
    astray = Resend(message_id=promise(), resent_from=uuid.UUID(int=7), batch=row.batch, created_at=row.created_at)
    for change in (
        lambda: astray.save(force_insert=True),
        lambda: Resend.objects.filter(pk=row.pk).update(batch=None),
        lambda: Resend.objects.filter(pk=row.pk).update(batch=row.batch + 7),
        lambda: ReplayItem.objects.filter(successor=row.pk).update(successor=None),
    ):
        change()
        assert "outbox: every message that a batch sent again is in its items" in [
            check.name for check in verify.checks() if not check.ok
        ]
        Resend.objects.filter(pk=row.pk).update(batch=row.batch)
        Resend.objects.filter(pk=astray.pk).delete()
        ReplayItem.objects.filter(letter=row.resent_from).update(successor=row.pk)
    assert_whole()


# -- In a terminal -------------------------------------------------------------------------------------------
def run(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("resend_messages", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_a_call_is_a_batch_that_a_worker_ends(memory, go):
    (pk, *_) = sent(3, memory, go)
    assert run("--since", LONG_AGO, "--dry-run") == ["would resend 3 messages; nothing was changed"]
    (line,) = run(str(pk), "--dry-run", "--json")
    assert json.loads(line)["messages"] == "1 chosen message"
    assert not ReplayBatch.objects.exists()
    batch = ReplayBatch(pk=int(run(str(pk), "--reason", "it never came", "--detach")[0].split(":")[0].split()[-1]))
    batch.refresh_from_db()
    carried_out(batch, memory, go)
    assert (counts(batch), OperatorAction.objects.get().verb) == ({"verified": 1}, "resend")
    assert run("--since", LONG_AGO, "--dry-run") == [
        "would resend 2 messages; nothing was changed", f"skipped 2: {LATELY_SAID}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--channel", "memory"], 2),
        (["--since", "soon"], 1),
        (["--since", LONG_AGO], 1),  # no reason
        (["--since", LONG_AGO, "--reason", "it never came", "--rate", "0"], 1),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(memory, arguments, code):
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    assert refused.value.returncode == code
    assert not ReplayBatch.objects.exists()
