"""Refusals alike: when they pause a channel, when they do not, and what comes back when it is resumed."""

import itertools
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from hypothesis import given
from hypothesis import strategies as st

from config.admin.levers import Operator
from outbox import verify
from outbox.channels import permits
from outbox.channels.handlers import Outcome
from outbox.delivery import refusals
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.refusals import RefusalRun, RefusedMessage
from outbox.letters import levers, redelivery
from outbox.models import ChannelState, DeadLetter, FailureGroup, OperatorAction
from tests.outbox.race import race
from tests.outbox.scripted import PERMANENT, SENT, Scripted, promise, states
from tests.row_locks import locks_asked_for

pytestmark = pytest.mark.django_db
ME = Operator("me")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS = itertools.count()


def denied(text="554 5.7.1 <address>: Relay access denied"):
    """A refusal with an id of its own that may be about our account."""
    return Outcome("permanent", f"RCPT: {text} (id {next(NUMBERS)}x)", unclear=True)


UNKNOWN = Outcome("permanent", "RCPT: 550 5.1.1 no such user", of_recipient=True)
DENIED = denied()
BUSY = Outcome("transient", "RCPT: 454 4.7.1 Relay access denied", unclear=True)


@pytest.fixture(autouse=True)
def _five(settings):
    settings.OUTBOX_PAUSE_AFTER_REFUSALS = 5


def state(channel="memory"):
    return ChannelState.objects.get(name=channel)


def orders(number, start=0):
    return [promise(f"order:{at}") for at in range(start, start + number)]


def refuse(memory, go, *outcomes):
    """A try for each of these outcomes, in their order."""
    orders(len(outcomes), next(NUMBERS) * 1000)
    memory.answers = list(outcomes)
    go(memory)


# -- Pure --------------------------------------------------------------------------------------------------
def steps_of(of_recipient):
    who = st.integers(1, 4).map("{:08d}".format)
    return st.lists(
        st.none() | st.builds(RefusedMessage, st.sampled_from("ab"), who, st.just(""), of_recipient=of_recipient)
    )


@given(steps_of(st.booleans()))
def test_a_run_counts_only_different_recipients_who_were_refused_for_its_cause_since_a_message_was_sent(steps):
    run = RefusalRun()
    for number, step in enumerate(steps):
        run = run.after(step, NOW + timedelta(seconds=number))
    since = list(itertools.takewhile(lambda step: step, reversed(steps)))
    assert set(run.people) <= {step.who for step in since if step.cause == run.refused_as}
    assert len(run.people) == len(set(run.people))
    assert bool(run.people) == bool(since)


@given(steps_of(st.just(False)))
def test_a_run_is_what_followed_the_last_message_sent_and_the_last_other_cause(steps):
    run = RefusalRun()
    for number, step in enumerate(steps):
        run = run.after(step, NOW + timedelta(seconds=number))
    tail = (
        list(itertools.takewhile(lambda step: step and step.cause == steps[-1].cause, reversed(steps))) if steps else []
    )
    assert set(run.people) == {step.who for step in tail}
    assert len(run.people) == len(set(run.people))
    assert run.refused_since == (NOW + timedelta(seconds=len(steps) - len(tail)) if tail else None)


# -- When it pauses ----------------------------------------------------------------------------------------
def test_five_recipients_refused_alike_pause_the_channel_with_the_text(memory, go):
    orders(20)
    memory.always = denied()
    assert go(memory) == 0
    assert len(memory.calls) == 5
    assert states() == {"dead_lettered": 5, "pending": 15}
    row = state()
    assert (row.paused, row.paused_by, row.refused_people) == (True, "spillway", "")
    assert row.pause_reason.startswith("5 recipients in a row were refused alike: RCPT: 554 5.7.1")
    assert "Relay access denied" in row.pause_reason
    assert go(memory) == 0
    assert len(memory.calls) == 5


@pytest.mark.parametrize(
    "outcomes",
    [
        # Ids and addresses make no other text.
        [denied(f"554 5.7.1 <ada{at}@example.com>: Relay access denied, host mx{at}") for at in range(5)],
        [DENIED] + [UNKNOWN] * 5,  # a single refusal does not stand before those that are known
        [DENIED] * 3 + [PERMANENT] + [DENIED] * 2,  # a refusal of the mail itself neither counts nor ends the run
    ],
)
def test_what_else_stands_between_the_five_does_not_matter(memory, go, outcomes):
    refuse(memory, go, *outcomes)
    assert state().paused


@pytest.mark.parametrize(
    "outcomes",
    [
        [DENIED] * 4,
        [DENIED] * 4 + [SENT] + [DENIED] * 4,
        [DENIED] * 4 + [denied("550 5.7.26 unauthenticated")] + [DENIED] * 4,
        [PERMANENT] * 9,  # of the mail itself
        [UNKNOWN] * 4,
        [UNKNOWN] * 4 + [SENT] + [UNKNOWN] * 4,
        [Outcome("permanent", "suppressed: complained", reason="suppressed")] * 9,
        [Outcome("transient", "450 greylisted", unclear=True)] * 9,  # no letter yet
    ],
)
def test_fewer_or_others_do_not_pause_it(memory, go, outcomes):
    refuse(memory, go, *outcomes)
    assert not state().paused


def test_what_is_known_to_be_a_recipients_counts_when_many_get_the_same(memory, go):
    refuse(memory, go, *[UNKNOWN] * 5)
    assert state().paused
    assert len(memory.calls) == 5
    permits.resume("memory", ME, "the directory of the server is back")
    memory.answers = []
    assert go(memory) == 5


def test_a_bad_recipient_among_others_takes_one_off_the_run_and_does_not_end_it(memory, go):
    refuse(memory, go, *[DENIED] * 3, UNKNOWN, *[DENIED] * 2)
    assert (state().paused, len(state().refused_people)) == (False, 4 * refusals.HASH)
    refuse(memory, go, DENIED)
    assert state().paused


@pytest.mark.parametrize("refusal", [DENIED, UNKNOWN])
def test_one_recipient_who_is_refused_again_and_again_is_one(memory, go, refusal):
    for _ in range(9):
        promise("order:same")
    memory.always = refusal
    go(memory)
    assert states() == {"dead_lettered": 9}
    assert (state().paused, len(state().refused_people)) == (False, 8)
    memory.always = None
    refuse(memory, go, *[refusal] * 4)
    assert state().paused


def test_tries_that_end_alike_count_as_well(memory, go, settings):
    """A server that says 454 to every recipient: each message uses up its tries."""
    settings.OUTBOX_MAX_RETRIES = 0
    refuse(memory, go, *[BUSY] * 5)
    assert state().paused
    assert set(DeadLetter.objects.values_list("reason", flat=True)) == {"max_retries"}


def test_the_setting_says_how_many_and_zero_says_never(memory, go, settings):
    settings.OUTBOX_PAUSE_AFTER_REFUSALS = 0
    refuse(memory, go, *[DENIED] * 12)
    assert not state().paused
    settings.OUTBOX_PAUSE_AFTER_REFUSALS = 100
    refuse(memory, go, *[DENIED] * 99)
    assert (state().paused, len(state().refused_people)) == (False, 99 * refusals.HASH)
    refuse(memory, go, DENIED)
    assert state().paused


def test_the_run_is_of_the_channel_and_not_of_a_worker(memory, go):
    for _ in range(5):  # each round as by another process
        with locks_asked_for() as locks:
            refuse(memory, go, DENIED)
        assert "outbox_channelstate" in locks  # two at once would each write down their own
    assert state().paused


# -- When it is resumed ------------------------------------------------------------------------------------
def test_the_letters_of_the_run_are_requeued_when_it_resumes_and_no_others(memory, go):
    refuse(memory, go, DENIED, SENT)  # the same text, before a message was sent
    refuse(memory, go, PERMANENT)
    refuse(memory, go, *[DENIED] * 5)
    before = DeadLetter.objects.open().count()
    assert before == 7
    go(memory)
    assert DeadLetter.objects.open().count() == before  # nothing comes back while it is paused
    permits.resume("memory", ME, "relaying is allowed now")
    assert go(memory) == 5
    assert (DeadLetter.objects.open().count(), DeadLetter.objects.requeued().count()) == (2, 5)
    assert (state().requeue_as, state().requeue_since) == ("", None)
    group = FailureGroup.objects.get(title__contains="Relay")
    assert (group.open_count, group.requeued_count) == (1, 5)
    assert list(OperatorAction.objects.order_by("pk").values_list("verb", "rows")) == [
        ("pause", 1), ("resume", 1), ("requeue", 5),
    ]  # fmt: skip
    redelivery.look_after(state().updated_at)
    assert DeadLetter.objects.filter(status="resolved").count() == 5
    assert [check.name for check in verify.checks() if not check.ok] == []


def test_stragglers_of_other_workers_come_back_as_well(memory, go):
    """They were on their way when the channel was paused."""
    orders(8)
    claims = [claim(memory, "poll", 4) for _ in range(2)]
    memory.always = denied()
    for each in claims:
        deliver(each, memory, threading.Event())
    assert state().paused
    assert len(memory.calls) == 5
    memory.always = None
    permits.resume("memory", ME, "mended")
    assert go(memory) == 8
    assert states() == {"sent": 8}


def test_a_success_of_a_straggler_does_not_forget_the_letters(memory, go):
    orders(1, 50)
    straggler = claim(memory, "poll", 1)
    refuse(memory, go, *[DENIED] * 5)
    deliver(straggler, memory, threading.Event())
    permits.resume("memory", ME, "mended")
    assert go(memory) == 5


def test_a_letter_that_somebody_dealt_with_meanwhile_is_left_alone(memory, go):
    refuse(memory, go, *[DENIED] * 5)
    one, other, *_ = DeadLetter.objects.order_by("pk").values_list("pk", flat=True)
    levers.pull("discard", [one], ME, "not wanted any more")
    levers.pull("requeue", [other], ME, "try this one")
    permits.resume("memory", ME, "mended")
    assert go(memory) == 4
    assert DeadLetter.objects.get(pk=one).status == "discarded"


def test_who_had_paused_it_keeps_the_word_and_the_letters_come_back_all_the_same(memory, go):
    orders(5)
    held = claim(memory, "poll", 5)
    permits.pause("memory", ME, "maintenance")
    row = ChannelState.objects.filter(name="memory")
    memory.always = denied()
    # It was paused while these were under way: the first refusal stops this worker, so each is settled on its own.
    for message in list(held.messages):
        held.messages = [message]
        deliver(held, memory, threading.Event())
    assert row.values_list("paused_by", "pause_reason").get() == ("me", "maintenance")
    memory.always = None
    permits.resume("memory", ME, "done")
    assert go(memory) == 5


def test_stragglers_refused_for_another_cause_do_not_make_it_forget_the_letters(memory):
    orders(10)
    first, stragglers = (claim(memory, "poll", 5) for _ in range(2))
    owed = []
    for held, memory.always in ((first, DENIED), (stragglers, denied("550 5.7.26 not authenticated"))):
        for message in list(held.messages):
            held.messages = [message]
            deliver(held, memory, threading.Event())
        owed.append((state().requeue_as, state().requeue_since))
    assert owed[0] == owed[1] != ("", None)


def test_what_a_channel_owes_since_its_letters_were_looked_for_is_not_forgotten(memory, go, monkeypatch):
    refuse(memory, go, *[DENIED] * 5)
    permits.resume("memory", ME, "relaying is allowed now")
    take_back, since = redelivery.take_back, state().updated_at

    def meanwhile(*about):
        ChannelState.objects.update(requeue_as="another", requeue_since=since)
        return take_back(*about)

    monkeypatch.setattr(redelivery, "take_back", meanwhile)
    assert refusals.bring_back(memory) == 5
    assert (state().requeue_as, state().requeue_since) == ("another", since)


def test_a_run_that_a_person_resumed_in_the_middle_begins_anew(memory, go):
    refuse(memory, go, *[DENIED] * 4)
    permits.pause("memory", ME, "maintenance")
    permits.resume("memory", ME, "done")
    refuse(memory, go, DENIED)
    assert not state().paused


def test_refused_once_more_they_pause_it_once_more(memory, go):
    refuse(memory, go, *[DENIED] * 5)
    permits.resume("memory", ME, "mended, they say")
    memory.always = denied()
    assert go(memory) == 0
    assert state().paused
    memory.always = None
    permits.resume("memory", ME, "mended now")
    assert go(memory) == 5
    assert states() == {"sent": 5}


def test_letters_of_another_channel_in_the_same_group_stay(install, go):
    one, other = Scripted(), Scripted(name="other")
    install(one, other)
    permits.ensure(["memory", "other"])
    promise("order:1", channel="memory")
    one.answers = [DENIED]
    go(one)
    for at in range(5):
        promise(f"order:o{at}", channel="other")
    other.answers = [DENIED] * 5
    go(other)
    assert FailureGroup.objects.get().open_count == 6
    for at in range(4):
        promise(f"order:m{at}", channel="memory")
    one.answers = [DENIED] * 4
    go(one)
    assert [state(name).paused for name in ("memory", "other")] == [True, True]
    permits.resume("other", ME, "mended")
    assert go(other) == 5
    assert DeadLetter.objects.open().count() == 5


def test_more_letters_than_one_transaction_takes_come_back(memory, go, settings, monkeypatch):
    monkeypatch.setattr(refusals, "LISTED", 2)
    refuse(memory, go, *[DENIED] * 5)
    permits.resume("memory", ME, "mended")
    assert go(memory) == 5


def test_change_capture_leaves_them_to_the_poller(memory, go):
    """It claims in a transaction of its own, which holds locks that the letters would wait for."""
    refuse(memory, go, *[DENIED] * 5)
    permits.resume("memory", ME, "mended")
    assert go(memory, ids=orders(1, 70), path="cdc") == 1
    assert DeadLetter.objects.open().count() == 5
    assert go(memory) == 5


# -- Several at once ---------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_refusals_of_several_processes_at_once_pause_it_once(install):
    memory = install(Scripted())
    permits.ensure(["memory"])
    orders(12)
    memory.always = denied()
    claims = [claim(memory, "poll", 3) for _ in range(4)]
    together = threading.Barrier(4)

    def all_at_once(messages):
        if len(memory.calls) < 4:
            together.wait(30)

    memory.before = all_at_once
    race(*[lambda each=each: deliver(each, memory, threading.Event()) for each in claims])
    assert state().paused
    assert 5 <= len(memory.calls) <= 8  # the fifth pauses it; what each of the others has in hand ends, too
    assert OperatorAction.objects.filter(verb="pause").count() == 1
    assert states() == {"dead_lettered": len(memory.calls), "pending": 12 - len(memory.calls)}
    assert verified()


@pytest.mark.django_db(transaction=True)
def test_of_several_that_bring_the_letters_back_each_letter_is_taken_once(install):
    memory = install(Scripted())
    permits.ensure(["memory"])
    orders(5)
    memory.always = denied()
    deliver(claim(memory, "poll", 9), memory, threading.Event())
    memory.always = None
    permits.resume("memory", ME, "mended")
    brought = race(*[lambda: refusals.bring_back(memory) for _ in range(4)])
    assert sum(brought) == 5
    assert DeadLetter.objects.requeued().count() == 5
    assert state().requeue_since is None
    deliver(claim(memory, "poll", 9), memory, threading.Event())
    assert states() == {"sent": 5}
    assert memory.repeats == {}
    connections.close_all()


def verified():
    return not [check.name for check in verify.checks() if not check.ok]
