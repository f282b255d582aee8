"""The decode gate: every kind of poison has a verdict, and the same one everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.streams import TransferRequest
from config.gate import MAX_DEPTH, Gate, InvalidRecord, depth_of
from config.payload import Excerpt
from tests.conftest import order

GATE = Gate.of(TransferRequest, 65_536)


def with_field(value: bytes) -> bytes:
    """A valid order with one more, unknown field."""
    return order()[:-1] + b',"extra":' + value + b"}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"{", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"\xef\xbb\xbf" + order(), "invalid_json"),
        (order() + b"x", "invalid_json"),
        (with_field(b"NaN"), "invalid_json"),
        (with_field(b"Infinity"), "invalid_json"),
        (with_field(b'"\xff"'), "invalid_utf8"),
        (with_field(b'"\\u0000"'), "nul_character"),
        (with_field(b"[" * 40 + b"]" * 40), "too_deep"),
        (b"[" * 50_000 + b"]" * 50_000, "too_large"),
        (b"[" * 30_000 + b"]" * 30_000, "wrong_field"),
        (b'{"order_id": "a\\u0000"}', "wrong_field"),
        (b"null", "wrong_field"),
        (b"[]", "wrong_field"),
        (Excerpt.from_ends(order(), 10**8), "too_large"),
        (Excerpt.from_ends(b"", 10**8), "too_large"),
        (order(order_id=""), "wrong_field"),
        (order(order_id="x" * 201), "wrong_field"),
        (order(at="2026-02-12T10:00:00"), "wrong_field"),
        (order(at="yesterday"), "wrong_field"),
        (order(items={"S": 0}), "wrong_field"),
        (order(items={"S": -1}), "wrong_field"),
        (order(items={"S": 2**60}), "wrong_field"),
        (order(items={"S": 1.5}), "wrong_field"),
        (order(items={"S": True}), "wrong_field"),
        (order(items={"S": "3"}), "wrong_field"),
        (order(items={}), "wrong_field"),
        (order()[:-1] + b',"order_id":"\\ud800"}', "invalid_json"),
    ],
    # By the reason alone: values hold the time, and two workers of one run must name a test alike.
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_poison_gets_a_verdict(value, reason):
    with pytest.raises(InvalidRecord) as refused:
        GATE.decode(value)
    assert refused.value.reason == reason
    assert str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        b"1",
        b"1e400",
        b'"\\\\u0000"',
        b"9" * 5000,
        b"[" * 30 + b"]" * 30,
        b'"[[[[{{{{"',
        b'"\\ud83d\\ude00"',
        '"é漢"'.encode(),
    ],
)
def test_unknown_fields_may_hold_anything_that_can_be_stored(value):
    assert GATE.decode(with_field(value)).order_id == "A1"


def test_the_error_names_the_field():
    with pytest.raises(InvalidRecord, match=r"\$\.items\[0\]\.quantity"):
        GATE.decode(order(items={"S": "3"}))


@pytest.mark.parametrize(("depth", "verdict"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False)])
def test_depth_is_measured_exactly(depth, verdict):
    value = with_field(b"[" * depth + b"]" * depth)  # the object itself is one level more
    assert depth_of(value) == depth + 1
    try:
        GATE.decode(value)
        assert verdict
    except InvalidRecord as refused:
        assert refused.reason == "too_deep"
        assert not verdict


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(value):
    try:
        GATE.decode(value)
    except InvalidRecord as refused:
        assert refused.reason


@given(st.binary(max_size=40), st.integers(0, 150))
def test_a_damaged_order_is_decoded_or_refused(noise, place):
    value = order()
    try:
        assert GATE.decode(value[:place] + noise + value[place:]).items
    except InvalidRecord as refused:
        assert refused.reason
