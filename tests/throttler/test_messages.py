"""One notification: what is refused, when its life begins and ends, and the bytes that leave."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.gate import InvalidRecord
from throttler import messages
from throttler.messages import NotificationGate

GATE = NotificationGate(4096, 3600)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
FIELDS = st.dictionaries(TEXT | st.just("throttled"), st.integers() | TEXT | st.booleans(), min_size=1, max_size=5)


def value(**changed):
    fields = {
        "notification_id": "n1",
        "customer_id": "acme",
        "recipient": "ada@example.com",
        "message": {"text": "hello"},
        "created_at": "2026-02-12T10:00:00Z",
        **changed,
    }
    return json.dumps({name: part for name, part in fields.items() if part is not ...}).encode()


def reason(data):
    with pytest.raises(InvalidRecord) as refused:
        GATE.decode(data)
    return refused.value.reason


def test_a_notification_with_fields_that_nobody_knows_is_taken():
    assert GATE.decode(value(more=[1], ttl_seconds=3600)).ttl_seconds == 3600


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"customer_id": ...}, "wrong_field"),
        ({"customer_id": 7}, "wrong_field"),
        ({"message": "text"}, "wrong_field"),
        ({"ttl_seconds": "60"}, "wrong_field"),
        ({"ttl_seconds": True}, "wrong_field"),
        ({"customer_id": ""}, "no_customer"),
        ({"customer_id": "  "}, "no_customer"),
        ({"customer_id": "x" * 201}, "long_customer"),
        ({"customer_id": "a\x00b"}, "nul_character"),
        ({"customer_id": "a\nb"}, "control_character"),
        ({"customer_id": "a\x85b"}, "control_character"),
        ({"notification_id": "x" * 201}, "long_id"),
        ({"created_at": "yesterday"}, "bad_created_at"),
        ({"created_at": "2026-02-12T10:00:00"}, "bad_created_at"),
        ({"created_at": "2026-02-30T10:00:00Z"}, "bad_created_at"),
        ({"ttl_seconds": -1}, "negative_ttl"),
        ({"ttl_seconds": 3601}, "long_ttl"),
        ({"ttl_seconds": 10**18}, "long_ttl"),
        ({"message": {"text": "x" * 4096}}, "too_large"),
    ],
)
def test_what_is_wrong_has_a_reason(changed, expected):
    assert reason(value(**changed)) == expected


@pytest.mark.parametrize(("data", "expected"), [(None, "empty"), (b"", "empty"), (b"{", "invalid_json")])
def test_what_is_no_message_has_a_reason(data, expected):
    assert reason(data) == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_have_a_reason(data):
    try:
        GATE.decode(data)
    except InvalidRecord as refused:
        assert refused.reason


@given(TEXT)
def test_any_time_is_a_time_or_has_a_reason(text):
    try:
        messages.moment_us(text)
    except InvalidRecord as refused:
        assert refused.reason == "bad_created_at"


@pytest.mark.parametrize(("record_ms", "expected"), [(10_000, 9_000_001), (8_999, 8_999_000), (-1, 9_000_001)])
def test_a_life_begins_at_the_earlier_of_both_times(record_ms, expected):
    message = GATE.decode(value(created_at="1970-01-01T02:00:09.000001+02:00"))
    assert messages.created_us(message, record_ms) == expected


def test_a_message_that_names_no_lifetime_takes_its_customers():
    assert messages.expires_us(GATE.decode(value()), 5) == 0
    assert messages.expires_us(GATE.decode(value(ttl_seconds=2)), 5) == 2_000_005


def test_a_lifetime_that_ends_at_the_very_zero_is_still_one():
    assert messages.expires_us(GATE.decode(value(ttl_seconds=1)), -1_000_000) == 1


@given(FIELDS, st.booleans(), st.booleans())
def test_what_leaves_is_the_same_message_and_one_field(fields, throttled, escaped):
    data = json.dumps(fields, ensure_ascii=escaped).encode() + b" \n"
    pairs = json.loads(messages.output(data, throttled), object_pairs_hook=list)
    assert dict(pairs) == {**fields, "throttled": throttled}
    assert len(pairs) == len(dict(pairs))


def test_a_key_written_with_escapes_is_not_there_twice():
    left = messages.output(b'{"\\u0074hrottled":1,"a":{"throttled":2}}', True)
    assert json.loads(left, object_pairs_hook=list) == [("throttled", True), ("a", [("throttled", 2)])]


def test_the_bytes_of_a_message_stay_as_they_came():
    assert messages.output(b'{"a": 1.50, "b":9007199254740993}', False) == (
        b'{"a": 1.50, "b":9007199254740993,"throttled":false}'
    )


def test_a_message_that_is_given_up_says_why():
    assert json.loads(messages.expired(b'{"a":1,"reason":"mine"}', "ttl")) == {"a": 1, "reason": "ttl"}


def test_headers_say_where_it_came_from_and_keep_the_senders():
    kept = messages.output_headers([("trace", b"1"), ("forwarded", b"1"), ("source", b"x")], "in", 3, 7)
    assert kept == [("trace", b"1"), ("source", b"in/3/7")]
