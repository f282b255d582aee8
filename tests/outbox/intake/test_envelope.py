"""What a record of `messages-in` may look like: an envelope, what the outbox event router makes, and every poison."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from config.environment.env import BadSetting, grants_from_text
from config.gate import InvalidRecord
from outbox.intake import flow
from outbox.intake.envelope import read
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope, record

LONG = "x" * 201


def poison(**changes: Any) -> bytes:
    return json.dumps(envelope(**changes)).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in envelope().items() if key != name}).encode()


POISON = [
    (None, "empty"),
    (b"", "empty"),
    (b"{not json", "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b"[]", "wrong_field"),
    (b'"text"', "wrong_field"),
    (b"x" * 2_000_000, "too_large"),
    (b'{"payload": ' + b'{"a": ' * 40 + b"1" + b"}" * 41, "too_deep"),
    (poison(aggregate="a\x00b"), "nul_character"),
    (poison(payload=json.dumps({**MAIL, "text": "a\x00b"})), "nul_character"),
    (poison().replace(b"Your invoice", b"\xff"), "invalid_json"),
    *((without(name), "missing_field") for name in envelope()),
    (poison(channel=""), "wrong_field"),
    (poison(event_type="x" * 101), "wrong_field"),
    (poison(aggregate=LONG), "wrong_field"),
    (poison(idempotency_key=LONG), "wrong_field"),
    (poison(idempotency_key="x" * 195), "wrong_field"),  # with the name of the topic before it
    (poison(aggregate=["a"]), "wrong_field"),
    (poison(aggregate=True), "wrong_field"),
    (poison(aggregate=1.5), "wrong_field"),
    (poison(aggregate=2**70), "wrong_field"),
    (poison(payload=[MAIL]), "wrong_field"),
    (poison(payload=7), "wrong_field"),
    (poison(payload="{not json"), "invalid_json"),
    (poison(payload="[1]"), "wrong_field"),
    (poison(expires_at="tomorrow"), "bad_expires_at"),
    (poison(expires_at=1.5), "bad_expires_at"),
    (poison(expires_at=10**30), "bad_expires_at"),
    (poison(channel="fax"), "channel_not_allowed"),
    (poison(channel="kafka"), "channel_not_allowed"),
    (poison(payload={}), "payload_refused"),
    (poison(payload={**MAIL, "to": "nobody"}), "payload_refused"),
    (poison(payload={**MAIL, "to": "a@example.com, b@example.com"}), "payload_refused"),
    (poison(payload={**MAIL, "to": 7}), "payload_refused"),
    (poison(payload={**MAIL, "text": 7}), "payload_refused"),
    (poison(payload={**MAIL, "subject": "a\r\nBcc: eve@example.com"}), "payload_refused"),
    (poison(payload={**MAIL, "headers": {"Bcc": "eve@example.com"}}), "payload_refused"),
    (poison(payload={**MAIL, "headers": ["x"]}), "payload_refused"),
    (poison(payload={**MAIL, "text": "x" * 600_000}), "payload_refused"),
]


@pytest.mark.parametrize(("value", "reason"), POISON)
def test_every_poison_is_refused_with_its_reason(value, reason):
    with pytest.raises(InvalidRecord) as refusal:
        read(record(value), TOPIC)
    assert refusal.value.reason == reason
    assert len(str(refusal.value)) < 600


# -- shapes ------------------------------------------------------------------------------------------------
ROUTED = {name: value for name, value in envelope().items() if name != "payload"}
HEADERS = [
    ("id", b"I-1/issued"), ("eventType", b"invoice.issued"), ("channel", b"email"), ("aggregate", b"invoice:I-1"),
]  # fmt: skip
SHAPES = {
    "an envelope": record(envelope()),
    "with fields that nobody knows": record(envelope(more={"a": 1})),
    "the payload as text": record(envelope(payload=json.dumps(MAIL))),
    "with its schema": record({"schema": {"type": "struct"}, "payload": envelope()}),
    "the payload alone, and headers": record(MAIL, headers=HEADERS),
    "with its schema, and headers": record(
        {"schema": {"type": "string"}, "payload": json.dumps(MAIL)}, headers=HEADERS
    ),
    "the aggregate in the key alone": record(MAIL, headers=HEADERS[:3]),
    "fields in value and headers": record({"payload": MAIL, "channel": "email"}, headers=[*HEADERS[:2], HEADERS[3]]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_says_the_same(shape):
    promise = read(SHAPES[shape], TOPIC)
    about = (promise.channel, promise.event_type, promise.aggregate, promise.key, promise.expires_at)
    assert about == ("email", "invoice.issued", "invoice:I-1", "messages-in/I-1/issued", None)
    assert promise.given == MAIL


def test_numbers_of_columns_are_keys_as_well():
    promise = read(record(envelope(41, aggregate=-7)), TOPIC)
    assert (promise.key, promise.aggregate) == ("messages-in/41", "-7")


@pytest.mark.parametrize("value", ["2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00", 1_893_456_000_000_000])
def test_the_time_may_be_as_a_connector_writes_it(value):
    assert read(record(envelope(expires_at=value)), TOPIC).expires_at == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_a_field_that_is_blank_counts_as_left_out(blank):
    """A header may say it then."""
    fields = {**envelope(), "expires_at": blank, "channel": blank}
    assert read(record(fields, headers=[("channel", b"email")]), TOPIC).expires_at is None
    assert read(record(fields, headers=[*HEADERS, ("expires_at", b"2030-01-01T00:00:00Z")]), TOPIC).expires_at
    with pytest.raises(InvalidRecord, match="channel|email"):
        read(record(fields), TOPIC)


# -- who may ask for what ----------------------------------------------------------------------------------
def test_a_producer_that_is_named_has_channels_of_its_own(settings):
    settings.MESSAGES_IN = {TOPIC: {"billing": ["email"], "stock": ["kafka"]}}
    read(record(envelope(), headers=[("producer", b"billing")]), TOPIC)
    refusals = [
        (("producer", b"stock"), "messages-in@stock use kafka, not 'email'"),
        (("producer", b"eve"), "the producer 'eve' promise nothing"),
        (("other", b"billing"), "a record without the header `producer` promise nothing"),
        (("producer", b"\xff"), "a record without the header `producer` promise nothing"),
    ]
    for header, said in refusals:
        with pytest.raises(InvalidRecord, match=said):
            read(record(envelope(), headers=[header]), TOPIC)


def test_the_last_header_of_a_name_counts(settings):
    """A connector adds its own behind those of the record."""
    settings.MESSAGES_IN = {TOPIC: {"billing": ["email"]}}
    read(record(envelope(), headers=[("producer", b"eve"), ("producer", b"billing")]), TOPIC)


def test_the_setting_says_who_may_use_which_channel():
    text = "messages-in=email; messages-in@billing = email, texts ;fast=kafka"
    assert grants_from_text(text) == {
        "messages-in": {"": ["email"], "billing": ["email", "texts"]},
        "fast": {"": ["kafka"]},
    }
    assert grants_from_text("off") == {}


@pytest.mark.parametrize(
    "text",
    ["messages-in", "=email", "a b=email", "t@=email", "t@x y=email", "t=", "t=email,", "t=a;t=b", "t@p=a;t@p=b"],
)
def test_a_bad_setting_is_named_in_one_line(text):
    with pytest.raises(BadSetting, match=r"^MESSAGES_IN: [^\n]+$"):
        grants_from_text(text)


def test_a_channel_that_nobody_handles_stops_the_start(settings):
    settings.MESSAGES_IN = {TOPIC: {"": ["email", "fax"]}}
    (error,) = flow.granted_channels_exist(None)
    assert (error.id, "'fax'" in error.msg) == ("spillway.E024", True)
