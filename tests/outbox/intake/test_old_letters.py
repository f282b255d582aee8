"""Letters of promises that are older than OUTBOX_IDEMPOTENCY_DAYS: what was sent under their key is not sent again."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import msgspec
import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.bookkeeping.models import FlowCounter
from outbox.bookkeeping.verify import every_record_has_an_outcome
from outbox.intake.envelope import GONE, Promise
from outbox.intake.flow import MessagesIn
from outbox.intake.handler import NAME
from outbox.intake.promise_letters import FORGOTTEN, REPEATED
from outbox.intake.reached import READ_BY, read_by
from outbox.letters.levers import forecast, pull
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import judge
from outbox.messages.retention import sweep_keys
from outbox.models import IdempotencyKey, OutboxMessage
from tests.outbox.intake.conftest import MAIL, envelope, record, stored, write

pytestmark = pytest.mark.django_db
PERSON = Operator("M. Okafor")
ROUTED = [("id", b"I-1/issued"), ("eventType", b"invoice.issued"), ("aggregate", b"invoice:I-1"), ("channel", b"email")]
WAYS = {
    "an envelope": envelope(),
    "a number": envelope(key=4711),
    "a converter's schema": {"schema": {}, "payload": envelope()},
}
BROKEN = {
    "cut": msgspec.json.encode(envelope())[:-3],
    "cut inside a JSON": json.dumps({"schema": {}, "payload": json.dumps(envelope())}).encode()[:-4],
    "with an escape": msgspec.json.encode(envelope()).replace(b"I-1/issued", b"I-1\\/issued")[:-3],
    "of another alphabet": b"\xff" + msgspec.json.encode(envelope()),
}


def letter() -> DeadLetter:
    return DeadLetter.objects.filter(source=NAME).order_by("pk")[0]


def days_pass(days: int) -> int:
    """As far as keys and messages are concerned."""
    OutboxMessage.objects.update(state="sent", sent_at=database_now())
    IdempotencyKey.objects.update(created_at=database_now() - timedelta(days=days))
    return sweep_keys(database_now())


@pytest.fixture
def buried(settings):
    """The letter of a record that was not allowed what the next record with its key was; the mail is sent."""

    def bury(value, headers=()) -> DeadLetter:
        settings.MESSAGES_IN = {"messages-in": {"": ["kafka"], "billing": ["kafka"]}}
        write(record(value, headers=headers))
        settings.MESSAGES_IN = {"messages-in": {"": ["email"], "billing": ["email"]}}
        write(record(value if isinstance(value, dict) else envelope(), headers=headers))
        assert (len(stored()), letter().status) == (1, "open")
        return letter()

    return bury


@pytest.mark.parametrize("status", ["open", "discarded"])
@pytest.mark.parametrize("days", [8, 400])
@pytest.mark.parametrize("producer", [b"", b"billing"])
def test_what_was_sent_under_its_key_is_not_sent_again(buried, producer, days, status):
    found = buried(envelope(), [("producer", producer)] if producer else [])
    if status == "discarded":
        pull("discard", [found.pk], PERSON, "nobody wants it")
    assert days_pass(days) == 0
    assert sweep_keys(database_now()) == 0
    if status == "discarded":
        pull("restore", [found.pk], PERSON, "somebody wants it")
    assert forecast(letter()).tone == "idle"
    pull("requeue", [found.pk], PERSON, "try again")
    assert (len(stored()), letter().status) == (1, "resolved")
    assert days_pass(8) == 1, "nobody names the key any more"


def test_the_forecast_and_the_deed_say_why_also_when_the_message_is_gone(buried, monkeypatch):
    """Its day was dropped: what its key says of it is left. A mail is filled in with the time of its promise."""
    monkeypatch.setattr(Promise, "digest", "1" * 32)
    found = buried(envelope())
    assert days_pass(8) == 0
    OutboxMessage.objects.all().delete()
    IdempotencyKey.objects.update(payload_hash="0" * 32)
    assert (forecast(letter()).eligible, forecast(letter()).why) == (False, GONE)
    ((_, failed),) = pull("requeue", [found.pk], PERSON, "try again").failed
    assert (DeadLetter.objects.get(pk=failed.successor).error, stored()) == (GONE, [])
    IdempotencyKey.objects.update(payload_hash="1" * 32)
    again = DeadLetter.objects.get(pk=failed.successor)
    assert forecast(again).tone == "idle"
    pull("requeue", [again.pk], PERSON, "try again")
    again.refresh_from_db()
    assert (stored(), again.status, again.evidence) == ([], "resolved", REPEATED)


@pytest.mark.parametrize("way", WAYS)
def test_its_key_is_kept_however_it_came(buried, way):
    buried(WAYS[way])
    assert days_pass(8) == 0


def test_the_key_in_a_header_is_kept(buried):
    buried(dict(MAIL), ROUTED)
    assert days_pass(8) == 0


@pytest.mark.parametrize("way", BROKEN)
def test_the_key_of_a_record_that_nobody_can_read_is_kept(buried, way):
    buried(BROKEN[way])
    assert letter().step == "decode"
    assert days_pass(8) == 0


@pytest.mark.parametrize("state", ["pending", "uncertain", "processing"])
def test_the_key_of_what_may_still_be_sent_is_kept(state):
    write(record(envelope()))
    OutboxMessage.objects.update(state=state)
    IdempotencyKey.objects.update(created_at=database_now() - timedelta(days=8))
    assert sweep_keys(database_now()) == 0
    write(record(envelope()))
    assert len(stored()) == 1


def test_the_forecast_of_a_copy_says_that_nobody_has_kept_a_key_of_its_own(buried):
    found = buried(BROKEN["cut"])
    days_pass(8)
    for key, tone in (("I-1/issued", "idle"), ("I-1/issued/again", "warn")):
        copy = found.copy_with(msgspec.json.encode(envelope(key)), 1)
        assert judge([copy], database_now())[found.pk].tone == tone


def test_a_letter_of_before_keys_were_kept_is_refused_with_the_reason(buried):
    """Its key was deleted by the release before: whether its mail was sent, nobody knows."""
    found = buried(envelope())
    DeadLetter.objects.update(created_at=database_now() - timedelta(days=9))
    IdempotencyKey.objects.all().delete()
    assert not forecast(letter()).eligible
    outcome = pull("requeue", [found.pk], PERSON, "try again")
    assert ([why for _, why in outcome.refused], len(stored())) == ([FORGOTTEN], 1)
    assert every_record_has_an_outcome(NAME, MessagesIn.outcomes).ok
    copy = found.copy_with(msgspec.json.encode(envelope("I-1/issued/again")), 1)
    assert judge([copy], database_now())[found.pk].eligible


def test_a_letter_of_after_keys_were_kept_goes_however_old_it_is(settings):
    MessagesIn().sweep(database_now() - timedelta(days=20))
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    write(record(envelope()))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    DeadLetter.objects.update(created_at=database_now() - timedelta(days=19))
    MessagesIn().sweep(database_now())
    pull("requeue", [letter().pk], PERSON, "try again")
    assert len(stored()) == 1


# -- replays of the topic ----------------------------------------------------------------------------------
HOUR_MS = 3_600_000


def replay(*records) -> int:
    before = OutboxMessage.objects.count()
    write(*records, revision=1, from_log=True)
    return OutboxMessage.objects.count() - before


@pytest.mark.parametrize("ahead", [2, 24 * 365])
def test_a_replay_believes_no_time_to_come(ahead):
    sent = record(envelope(), timestamp=int(time.time() * 1000) + ahead * HOUR_MS)
    write(sent)
    assert days_pass(8) == 1
    assert replay(sent) == 0


def test_a_replay_leaves_out_what_was_read_before_keys_are_kept_whatever_its_time():
    """Its producer's clock was days ahead: by its own time it is young, and its key is gone."""
    sent = record(envelope())
    write(sent)
    now = database_now()
    MessagesIn().sweep(now - timedelta(days=8))
    MessagesIn().sweep(now - timedelta(days=6))
    assert days_pass(8) == 1
    assert replay(sent) == 0
    young = record(envelope("I-2/issued"))
    write(young)
    MessagesIn().sweep(now)
    IdempotencyKey.objects.all().delete()
    assert replay(young) == 1, "it was read after what is known of a week ago"


def test_what_was_noted_is_of_one_topic_and_forgotten_after_the_keys():
    write(record(envelope()))
    now = database_now()
    for days in (30, 20, 8, 0):
        MessagesIn().sweep(now - timedelta(days=days))
    assert FlowCounter.objects.filter(flow__startswith=READ_BY).count() == 2
    assert read_by(now, {"messages-in": "another-topic"}) == {}
