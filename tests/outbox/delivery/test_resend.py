"""What was sent can be sent again: a message of its own, counted apart, behind what its aggregate still has to send."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from outbox import verify
from outbox.bookkeeping import counters
from outbox.channels.handlers import Outcome
from outbox.delivery.levers import resend
from outbox.messages.models import FLOW
from outbox.messages.retention import sweep_keys, sweep_resends
from outbox.models import IdempotencyKey, OperatorAction, OutboxMessage, Resend
from outbox.partitioned import MESSAGES
from tests.outbox.race import race
from tests.outbox.scripted import AMBIGUOUS, PERMANENT, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANNA, BELA = Operator("Anna"), Operator("Bela")


@pytest.fixture
def sent(memory, go) -> OutboxMessage:
    pk = promise(correlation_id="c-1")
    go(memory)
    return message(pk)


def assert_whole() -> None:
    assert not [check for check in verify.checks() if not check.ok]


def test_it_is_a_message_of_its_own_that_says_the_same(sent, memory, go):
    pk = resend(sent.pk, ANNA, "it never came")
    again = message(pk)
    assert (again.state, again.attempts, again.pk > sent.pk) == ("pending", 0, True)
    for name in ("channel", "event_type", "aggregate", "payload", "correlation_id"):
        assert getattr(again, name) == getattr(sent, name)
    go(memory)
    assert memory.accepted == [sent.pk, pk]
    assert (message(sent.pk).state, message(pk).state) == ("sent", "sent")
    assert (Resend.objects.get().resent_from, Resend.objects.get().readdressed) == (sent.pk, False)
    assert IdempotencyKey.objects.filter(message_id=pk).count() == 1
    assert counters.totals("outbox")["resent"] == 1
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.reason, action.actor_name) == ("resend", "it never came", "Anna")
    assert {action.pk} == {
        found.pk for key in (sent.pk, pk) for found in OperatorAction.objects.about("outbox.outboxmessage", key)
    }
    assert_whole()


@pytest.mark.parametrize("answer", [PERMANENT, AMBIGUOUS])
def test_what_was_not_sent_is_refused(memory, go, answer):
    pk = promise()
    for _ in range(2):  # before the first try, and after it failed
        with pytest.raises(Refusal, match="only what was sent"):
            resend(pk, ANNA, "it never came")
        memory.answers = [answer]
        go(memory)
    with pytest.raises(Refusal, match="only what was sent"):
        resend(uuid.uuid4(), ANNA, "it never came")
    assert not Resend.objects.exists()


def test_a_second_one_waits_until_the_first_has_left(sent, memory, go):
    pk = resend(sent.pk, ANNA, "it never came")
    with pytest.raises(Refusal, match="being sent again already"):
        resend(sent.pk, BELA, "they called again")
    go(memory)
    later = resend(pk, BELA, "they called again")  # from the page of the resent one
    assert set(Resend.objects.values_list("message_id", "resent_from")) == {(pk, sent.pk), (later, sent.pk)}
    with pytest.raises(Refusal, match="being sent again already"):
        resend(sent.pk, ANNA, "and again")
    assert_whole()


def test_of_two_at_once_one_is_refused(sent):
    def ask(who: Operator) -> str:
        try:
            return str(resend(sent.pk, who, "it never came"))
        except Refusal as refusal:
            return str(refusal)

    answers = race(lambda: ask(ANNA), lambda: ask(BELA))
    assert sorted(answers).count("it is being sent again already") == 1
    assert (OutboxMessage.objects.count(), Resend.objects.count(), OperatorAction.objects.count()) == (2, 1, 1)
    assert_whole()


def test_it_goes_behind_what_its_aggregate_still_has_to_send(sent, memory, go):
    waiting = promise()
    pk = resend(sent.pk, ANNA, "it never came")
    assert waiting < pk
    go(memory)
    go(memory)
    assert memory.accepted == [sent.pk, waiting, pk]
    assert_whole()


def test_it_does_so_although_this_hosts_clock_is_behind(sent, memory, go, clock):
    clock.ahead(seconds=5)
    waiting = promise()
    clock.ahead(seconds=-60)
    pk = resend(sent.pk, ANNA, "it never came")
    assert sent.pk < waiting < pk
    go(memory)
    go(memory)
    assert memory.accepted == [sent.pk, waiting, pk]
    assert_whole()


def test_a_channel_without_addresses_says_so_and_nothing_is_written(sent):
    with pytest.raises(Refusal, match="the channel memory has no address"):
        resend(sent.pk, ANNA, "it never came", "ada@example.com")
    assert not Resend.objects.exists()
    assert OutboxMessage.objects.count() == IdempotencyKey.objects.count() == 1


def test_a_recipient_who_gets_none_is_refused_with_the_way_out(sent, memory, monkeypatch):
    stopped = Outcome("permanent", "suppressed: complained")
    monkeypatch.setattr(memory, "screen", lambda messages: {one.id: stopped for one in messages})
    with pytest.raises(Refusal, match="suppressed: complained: give another address, or lift"):
        resend(sent.pk, ANNA, "it never came")
    assert not Resend.objects.exists()


def test_verify_misses_what_somebody_deleted(sent):
    pk = resend(sent.pk, ANNA, "it never came")
    row = Resend.objects.get()
    IdempotencyKey.objects.update(created_at=database_now() - timedelta(days=8))
    sweep_keys(database_now())
    for broken in (
        lambda: Resend.objects.filter(pk=pk).update(resent_from=uuid.UUID(int=sent.pk.int - 1)),
        Resend.objects.all().delete,
        lambda: Resend.objects.filter(pk=pk).update(resent_from=uuid.UUID(int=2**128 - 1)),
    ):
        broken()
        assert [check for check in verify.checks() if not check.ok]
        Resend.objects.all().delete()
        row.save(force_insert=True)
        assert_whole()


def test_old_ones_are_swept_and_counted(sent, settings):
    resend(sent.pk, ANNA, "it never came")
    assert sweep_resends(database_now() + timedelta(days=settings.OUTBOX_RETENTION_DAYS)) == 0
    late = database_now() + timedelta(days=settings.OUTBOX_RETENTION_DAYS + 2)
    assert sweep_resends(late) == 0, "the message is there: it may be unfinished, and its first is not sent again"
    day = replace(MESSAGES.partition(late.date()), key="20260101.gone")
    counters.record_dropped("default", day, {(FLOW, "pending"): OutboxMessage.objects.exclude(pk=sent.pk).delete()[0]})
    IdempotencyKey.objects.exclude(message_id=sent.pk).update(message_id=None)
    assert sweep_resends(late) == 1
    assert not Resend.objects.exists()
    assert_whole()
