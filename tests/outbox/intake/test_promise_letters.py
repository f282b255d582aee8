"""Letters of promised messages: requeued, edited, proven by the message that was made of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import letters_of
from outbox.bookkeeping.verify import every_record_has_an_outcome
from outbox.channels import permits
from outbox.channels.handlers import Outcome, handlers
from outbox.channels.models import ChannelState
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.intake.flow import MessagesIn
from outbox.intake.handler import NAME
from outbox.letters.edits import examine, field_of, form_of, mark_of, requeue_copy, text_of, with_fields
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import judge, look_after
from outbox.models import OutboxMessage
from tests.outbox.intake.conftest import MAIL, envelope, reasons, record, stored, write

pytestmark = pytest.mark.django_db
PERSON = Operator("M. Okafor")
STOP = type("Never", (), {"is_set": staticmethod(lambda: False)})()


def letter() -> DeadLetter:
    return DeadLetter.objects.get(status="open", source=NAME)


def requeue() -> None:
    pull("requeue", [letter().pk], PERSON, "try again")


def edit(**changes: Any) -> DeadLetter:
    """An edited copy of the open letter, requeued."""
    found = letter()
    copy = {**json.loads(bytes(found.payload)), **changes}
    requeue_copy(found.pk, json.dumps(copy), found.edit, PERSON, "put right")
    found.refresh_from_db()
    return found


def test_a_letter_that_named_no_aggregate_finds_the_letter_of_its_message(monkeypatch):
    permits.ensure(["email"])
    write(record(envelope(aggregate=None)))
    found = edit(aggregate="invoice:I-1")
    monkeypatch.setattr(handlers()["email"], "send", lambda messages: [Outcome("permanent", "no") for _ in messages])
    deliver(claim(handlers()["email"], "poll", 10), handlers()["email"], STOP)
    assert look_after(database_now()) == 1
    found.refresh_from_db()
    assert (found.status, found.successor) == ("failed_again", DeadLetter.objects.get(source="outbox").pk)


def test_what_came_back_too_late_is_the_next_letter_at_once(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    write(record(envelope(expires_at=past)))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    assert not judge([letter()], database_now())[letter().pk].eligible
    requeue()
    assert reasons() == ["channel_not_allowed", "expired"]
    assert stored() == []


def test_a_conflict_may_get_a_key_of_its_own():
    write(record(envelope()), record(envelope(payload={**MAIL, "to": "eve@example.com"})))
    requeue()
    assert sorted(DeadLetter.objects.values_list("status", flat=True)) == ["failed_again", "open"]
    assert edit(idempotency_key="I-1/issued/again").status == "requeued"
    assert [json.loads(message.payload)["to"] for message in stored()] == [MAIL["to"], "eve@example.com"]


def test_a_requeued_promise_that_was_stored_meanwhile_is_resolved(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    write(record(envelope()))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    write(record(envelope()))
    requeue()
    assert DeadLetter.objects.get().status == "resolved"
    assert len(stored()) == 1


def test_what_nobody_wants_any_more_fails_again_until_a_copy_says_otherwise():
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    write(record(envelope(payload={**MAIL, "to": "nobody"}, expires_at=past)))
    judgement = judge([letter()], database_now())[letter().pk]
    assert not judgement.eligible
    assert letters_of(NAME).faults(letter()) == [
        "`payload` cannot be sent: there is no @ in it; an address is like anna@example.com - at `$.payload.to`"
    ]
    assert edit(payload=MAIL, expires_at=None).status == "requeued"


def test_a_requeued_promise_has_a_whole_new_life(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    old = int((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1000)
    write(record(envelope(), timestamp=old))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    requeue()
    assert stored()[0].expires_at > datetime.now(UTC) + timedelta(hours=23)


WRONG = {"to": "nobody", "subject": "a\nb", "text": "It is ready."}
ROUTED = [("id", b"I-1/issued"), ("channel", b"email"), ("eventType", b"invoice.issued")]
# (the value of the record, its headers, where its payload stands)
SHAPES = {
    "an envelope": (envelope(payload=WRONG), (), "$.payload"),
    "with its schema": ({"schema": {}, "payload": envelope(payload=WRONG)}, (), "$.payload.payload"),
    "the payload alone": (WRONG, ROUTED, "$"),
    "that with its schema": ({"schema": {}, "payload": WRONG}, ROUTED, "$.payload"),
    "its own HTML": (envelope(payload={**WRONG, "html": "<p>Dear</p>"}), (), "$.payload"),
}


@pytest.mark.parametrize(("value", "headers", "place"), SHAPES.values(), ids=SHAPES)
def test_a_mail_that_a_service_promises_is_edited_in_the_fields_of_a_mail(value, headers, place):
    write(record(value, headers=headers))
    found, text = letter(), text_of(letter())
    form = form_of(found)
    shown = {field.path: field_of(text, field.path) for field in form.fields}
    assert shown == {f"{place}.{name}": wanted for name, wanted in WRONG.items()}
    assert [fault.path for fault in examine(found, text, database_now()).faults] == [
        f"{place}.{name}".removeprefix("$.") for name in ("to", "subject")
    ]
    given = dict(zip(shown, ["ada@EXAMPLE.com", "Your invoice", "Sorry."], strict=True))
    marks = {path: mark_of(known) for path, known in shown.items()}
    copy, faults = with_fields(text, found, form, given, marks, make=True)
    assert (faults, examine(found, copy, database_now()).faults) == ([], [])
    assert field_of(copy, f"{place}.to") == MAIL["to"], "in its normal form"
    assert requeue_copy(found.pk, copy, 0, PERSON, "they called").state == "waiting"
    mail = json.loads(stored()[0].payload)
    assert {name: mail[name] for name in (*WRONG, "html")} == {
        "to": MAIL["to"], "subject": "Your invoice", "text": "Sorry.", "html": "<p>Sorry.</p>\n",
    }  # fmt: skip


def test_what_is_no_mail_has_no_fields(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["email", "kafka"]}}
    values = [
        b"{", b"[]", envelope(channel=None), envelope(channel="fax"), envelope(payload=json.dumps(WRONG)),
        envelope(payload=[WRONG]),
        envelope(channel="kafka", payload={"topic": 7}),
    ]  # fmt: skip
    write(*[record(value) for value in values])
    letters = list(DeadLetter.objects.filter(source=NAME))
    assert [form_of(found) for found in letters] == [None] * len(values)
    (nested,) = [found for found in letters if b'\\"' in bytes(found.payload)]
    (fault,) = examine(nested, text_of(nested), database_now()).faults
    assert (fault.path, fault.line) == ("payload.to", 6)


def test_a_replay_of_letters_waits_for_their_channel(settings):
    permits.ensure(["email"])
    write(record(envelope("a"), timestamp=1), record(b"{"))
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    write(record(envelope("b")))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    permits.pause("email", PERSON, "provider is down")
    found = list(DeadLetter.objects.filter(source=NAME))
    assert letters_of(NAME).backpressure(found, database_now()) == ChannelState.objects.why_closed(
        {"email"}, database_now()
    )
    assert letters_of(NAME).backpressure(found, database_now())


def test_every_outcome_is_accounted_for():
    write(record(envelope()), record(envelope()), record(b"{"), record(envelope(aggregate="other")))
    pull("requeue", [row.pk for row in DeadLetter.objects.all()], PERSON, "try again")
    check = every_record_has_an_outcome(NAME, MessagesIn.outcomes)
    assert check.ok, check
    assert [check for check in MessagesIn().verify() if not check.ok] == []
    assert OutboxMessage.objects.count() == 1
