"""What a record of `messages-in` may look like: an envelope, what the outbox event router makes, and every poison."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
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


def schematic(value: Any, kind: str = "string", **more: Any) -> dict[str, Any]:
    """As JsonConverter writes it with `schemas.enable`."""
    return {"schema": {"type": kind, "optional": True, **more}, "payload": value}


def in_json(headers: list[tuple[str, bytes]], *, schemas: bool) -> list[tuple[str, bytes]]:
    """The same headers, and a null, by `header.converter` JsonConverter."""
    wrap = schematic if schemas else (lambda value: value)
    pairs = [*((name, value.decode()) for name, value in headers), ("expires_at", None)]
    return [(name, json.dumps(wrap(value)).encode()) for name, value in pairs]


TEXT = json.dumps(MAIL)
BASE64 = b64encode(TEXT.encode()).decode()
COLUMNS = [{"field": name, "type": "string"} for name in ROUTED]
JSON_KEY = json.dumps("invoice:I-1").encode()
SHAPES |= {
    "a null schema": record({"schema": None, "payload": envelope()}),
    "the payload as a text of JSON": record(json.dumps(TEXT).encode(), headers=HEADERS),
    "the envelope as a text of JSON": record(json.dumps(json.dumps(envelope())).encode()),
    "a text in a text": record(envelope(payload=json.dumps(TEXT))),
    "the payload as bytes": record(json.dumps(BASE64).encode(), headers=HEADERS),
    "the payload as bytes, and its schema": record(schematic(BASE64, "bytes"), headers=HEADERS),
    "the payload as bytes in an envelope": record(envelope(payload=BASE64)),
    "columns with their types": record(
        schematic(envelope(payload=BASE64), "struct", fields=[*COLUMNS, {"field": "payload", "type": "bytes"}])
    ),
    "bytes for a text": record(
        schematic(
            envelope(aggregate=b64encode(b"invoice:I-1").decode()),
            "struct",
            fields=[{"field": "aggregate", "type": "bytes"}],
        )
    ),
    "headers by JsonConverter": record(MAIL, headers=in_json(HEADERS, schemas=False)),
    "headers and a value by JsonConverter with schemas": record(
        schematic(MAIL, "struct"), headers=in_json(HEADERS, schemas=True)
    ),
    "a key by JsonConverter": record(MAIL, headers=HEADERS[:3], key=JSON_KEY),
    "a key by JsonConverter with schemas": record(
        MAIL, headers=HEADERS[:3], key=json.dumps(schematic("invoice:I-1")).encode()
    ),
    "the router's name of the type": record(
        {"payload": MAIL, "channel": "email", "eventType": "invoice.issued"}, headers=[HEADERS[0], HEADERS[3]]
    ),
    "an empty envelope field, and its header": record(envelope(event_type=""), headers=HEADERS),
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


MOMENT = datetime(2030, 1, 1, 12, 30, 15, 250_000, UTC)
MILLIS = int(MOMENT.timestamp() * 1000)
TIMES = {
    "io.debezium.time.Timestamp": MILLIS,
    "org.apache.kafka.connect.data.Timestamp": MILLIS,
    "io.debezium.time.MicroTimestamp": MILLIS * 1000,
    "io.debezium.time.NanoTimestamp": MILLIS * 1_000_000,
    "io.debezium.time.ZonedTimestamp": "2030-01-01T12:30:15.25Z",
    "io.debezium.time.IsoTimestamp": "2030-01-01T12:30:15.250000000Z",
}


@pytest.mark.parametrize("name", TIMES)
def test_a_time_in_a_header_or_a_column_is_as_each_converter_writes_it(name):
    """As text, as JSON, and as JSON with its schema; SimpleHeaderConverter writes Connect's own type with a pattern."""
    typed = schematic(TIMES[name], "int64" if isinstance(TIMES[name], int) else "string", name=name)
    told = [str(TIMES[name]), json.dumps(TIMES[name]), json.dumps(typed), f"{MOMENT:%Y-%m-%dT%H:%M:%S}.250Z"]
    for value in told:
        headers = [*HEADERS, ("expires_at", value.encode())]
        assert read(record(MAIL, headers=headers), TOPIC).expires_at == MOMENT, value
    column = {"field": "expires_at", **typed["schema"]}
    fields = envelope(expires_at=TIMES[name])
    assert read(record(fields), TOPIC).expires_at == MOMENT
    assert read(record(schematic(fields, "struct", fields=[column])), TOPIC).expires_at == MOMENT


def test_a_day_is_its_begin():
    column = {"field": "expires_at", "type": "int32", "name": "io.debezium.time.Date"}
    days = (MOMENT - datetime(1970, 1, 1, tzinfo=UTC)).days
    fields = schematic(envelope(expires_at=days), "struct", fields=[column])
    assert read(record(fields), TOPIC).expires_at == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [21_915, 1_893_456_000, -1])
def test_what_may_be_seconds_or_days_is_refused(value):
    """As milliseconds they would be in 1970, and nobody would want the message any more."""
    for about in (record(envelope(expires_at=value)), record(MAIL, headers=[*HEADERS, ("expires_at", b"%d" % value)])):
        with pytest.raises(InvalidRecord) as refusal:
            read(about, TOPIC)
        assert refusal.value.reason == "bad_expires_at"


def test_headers_of_ours_are_read_by_whatever_converter(settings):
    settings.MESSAGES_IN = {TOPIC: {"billing": ["email"]}}
    for value in (b"billing", b'"billing"', json.dumps(schematic("billing")).encode()):
        assert read(record(envelope(), headers=[("producer", value)]), TOPIC).key == "messages-in@billing/I-1/issued"


def test_a_text_that_only_begins_like_json_stands_for_itself():
    for key in ('"A" of B', "{A}", '{"a": 1}'):
        assert read(record(MAIL, headers=HEADERS[:3], key=key.encode()), TOPIC).aggregate == key


def test_a_record_whose_time_a_column_of_microseconds_has_made_was_promised_now():
    promise = read(record(envelope(), timestamp=MILLIS * 1000), TOPIC)
    assert parsedate_to_datetime(json.loads(promise.text)["headers"]["Date"]).year == datetime.now(UTC).year


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
