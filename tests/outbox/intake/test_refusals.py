"""Topic `messages-refused`: a producer is told once of each record that became a letter, and never what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from django.db import transaction

from config.database.clock import database_now
from config.kafka import RecordBatch
from config.payload import Excerpt
from outbox.channels.kafka import KafkaHandler, record_of
from outbox.flow import Outbox
from outbox.intake import refusals
from outbox.intake.flow import granted_channels_exist
from outbox.intake.handler import Intake
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from tests.conftest import TOPIC_ID
from tests.outbox.intake.conftest import MAIL, counted, envelope, record, write
from tests.tree import ROOT

pytestmark = pytest.mark.django_db
TRACE = f"00-{7:032x}-{8:016x}-01"


@pytest.fixture(autouse=True)
def nobody_is_told(settings: Any) -> None:
    """Here they are."""
    settings.MESSAGES_REFUSED = True


def told() -> list[OutboxMessage]:
    return list(OutboxMessage.objects.filter(channel="kafka").order_by("id"))


def produced(message: OutboxMessage) -> tuple[str, str, dict[str, Any]]:
    """Topic, key and value of the record that the channel makes of it."""
    KafkaHandler.check(None, msgspec.json.decode(message.payload))  # type: ignore[arg-type]
    message.headers = {}  # type: ignore[attr-defined]
    outgoing = record_of(message)  # type: ignore[arg-type]
    return outgoing.topic, str(outgoing.key), msgspec.json.decode(outgoing.value or b"")


def test_a_record_that_becomes_a_letter_is_told_where_it_lies_and_why(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["email"], "shop": ["email"]}}
    headers = [("producer", b"shop"), ("correlation_id", b"c-1"), ("traceparent", TRACE.encode())]
    refused = record(envelope(payload={**MAIL, "to": "nobody at all"}), offset=70, partition=3, headers=headers)
    write(record(envelope("other")), refused)
    letter, (message,) = DeadLetter.objects.get(), told()
    assert (message.event_type, message.state, message.correlation_id) == ("message.refused", "pending", "c-1")
    assert message.traceparent == TRACE
    topic, key, value = produced(message)
    assert (topic, key) == ("messages-refused", "invoice:I-1")
    assert value.pop("refused_at")
    assert value == {
        "topic": "messages-in", "partition": 3, "offset": 70, "idempotency_key": "I-1/issued", "producer": "shop",
        "reason": "payload_refused", "letter": str(letter.pk),
    }  # fmt: skip
    assert not [text for text in ("nobody", "Your invoice", "It is ready") if text in message.payload]
    assert [check for check in Outbox().verify() if not check.ok] == []


def test_the_schema_and_the_example_of_the_document_say_what_is_told():
    schema = json.loads((ROOT / "docs" / "messages-refused.schema.json").read_text())
    page = (ROOT / "docs" / "messages-in.md").read_text().partition("## Topic `messages-refused`")[2]
    example = json.loads(page[page.index("{") : page.index("}") + 1])
    write(record(envelope(channel="fax"), headers=[("producer", b"shop")]), record(b"{"))
    whole, bare = (produced(message)[2] for message in told())
    assert set(schema["properties"]) == set(example) == set(whole)
    assert set(schema["required"]) == set(bare)


POISON = [b"{secret", b"\xff", b"", None, b'{"channel": "secret"}', b'["secret"]', Excerpt.of(b"secret" * 10)]


@pytest.mark.parametrize("value", POISON, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(
    ("key", "shown"),
    [(b"invoice:7", "invoice:7"), ("\u00e4\U0001f600".encode(), "ä😀"), (b"\xff", ""), (b"a\x00", ""), (None, "")],
)
def test_what_names_nothing_is_told_under_the_key_of_the_record(value, key, shown):
    write(record(value, key=key))
    _, found, said = produced(told()[0])
    assert found == shown
    assert said["reason"] == DeadLetter.objects.get().reason
    assert "secret" not in told()[0].payload
    assert told()[0].payload.isascii()  # any character set holds it


def test_a_key_that_was_used_for_another_message_is_told():
    write(record(envelope()), record(envelope(aggregate="invoice:I-2")))
    _, key, said = produced(told()[0])
    assert (key, said["reason"]) == ("invoice:I-2", "key_conflict")


def test_what_the_database_refused_is_told():
    handler, refused = Intake(), record(envelope(), headers=[("correlation_id", "ä".encode())])
    batch = RecordBatch([refused], {refused.topic: TOPIC_ID})
    with transaction.atomic():
        handler.park(batch, refused, ValueError("no room"), "", database_now())
        handler.park(batch, refused, ValueError("no room"), "", database_now())
    (message,) = told()
    assert produced(message)[2]["reason"] == "database_refused"
    assert message.correlation_id == ""
    assert counted() == {"parked": 1, "read": 2, "repeated": 1}


def test_a_record_is_told_once_however_often_it_is_read():
    refused = record(b"{")
    write(refused)
    write(refused)
    write(refused, revision=1, from_log=True)
    assert len(told()) == 1


def test_a_letter_that_comes_back_and_fails_again_tells_nobody():
    refused = record(b"{")
    write(refused)
    write(refused, revision=1)
    assert (DeadLetter.objects.count(), len(told())) == (2, 1)


def test_each_is_a_message_that_waits_for_no_other():
    write(record(b"{"), record(b"{"), record(envelope()))
    assert len({message.aggregate for message in OutboxMessage.objects.all()}) == 3


def test_no_letter_is_without_its_record_and_none_of_them_is_alone(monkeypatch):
    """Both are of one transaction."""

    def fail(*args: object, **more: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(refusals, "log_committed", fail)
    with pytest.raises(RuntimeError), transaction.atomic():
        write(record(b"{"))
    assert (DeadLetter.objects.count(), len(told())) == (0, 0)


def test_it_can_be_switched_off(settings):
    settings.MESSAGES_REFUSED = False
    write(record(b"{"))
    assert (DeadLetter.objects.count(), told()) == (1, [])


def test_it_needs_the_channel_that_sends_it(settings):
    settings.HANDLERS = {"email": settings.HANDLERS["email"]}
    (error,) = granted_channels_exist(None)
    assert "MESSAGES_REFUSED" in error.msg
    settings.MESSAGES_REFUSED = False
    assert granted_channels_exist(None) == []


CATALOGUE = (
    "from django.conf import settings; print('messages-refused' in settings.KAFKA_TOPICS, settings.MESSAGES_REFUSED)"
)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "True True"),
        ({"MESSAGES_REFUSED": "off"}, "False False"),
        ({"MESSAGES_IN": "off"}, "False False"),
        ({"MESSAGES_IN": "messages-refused=email"}, "MESSAGES_IN: messages-refused tells what was refused"),
    ],
)
def test_the_topic_is_in_the_catalogue_where_somebody_is_told(environment, said):
    given = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **environment}
    ran = subprocess.run([sys.executable, "-c", CATALOGUE], env=given, cwd=ROOT, capture_output=True, text=True)
    assert said in ran.stdout + ran.stderr
