"""A key is the same text whatever its connector makes of numbers and bytes; what may be anything else is refused."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.gate import InvalidRecord
from config.kafka.debezium import DECIMAL, VARIABLE_SCALE, UnavailableValue, change_of, key_of

PLACEHOLDER = "__debezium_unavailable_value"
DIGITS = UUID("01a1ff7b-599a-76e9-8da3-f3c85801b1ff")
BYTES, TEXT, DOUBLE = ({"type": kind} for kind in ("bytes", "string", "double"))


def base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def number_bytes(number: int) -> str:
    """As Java's BigInteger writes itself."""
    return base64(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, signed=True))


def decimal(scale: object) -> dict[str, object]:
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": scale}}


def shapes(value, schema, before=None):
    """The same row in an envelope and flat, with its schema where there is one."""
    row, fields = {"id": "V1", "key": value}, [{"field": "key", **(schema or {})}]
    envelope = {"op": "u", "before": before, "after": row}
    if schema is None:
        return [envelope, row, {"payload": envelope}, {"payload": row}]
    rows = [{"field": place, "type": "struct", "fields": fields} for place in ("before", "after")]
    return [
        {"schema": {"type": "struct", "fields": rows}, "payload": envelope},
        {"schema": {"type": "struct", "fields": fields}, "payload": row},
    ]


def keys(value, schema=None):
    """What all shapes agree on."""
    texts = {str(key_of(change_of(shape), "key", PLACEHOLDER)) for shape in shapes(value, schema)}
    assert len(texts) == 1
    return texts.pop()


@given(st.integers(-(10**38), 10**38), st.integers(-3, 20))
def test_a_decimal_reads_as_its_text_in_both_precise_forms(number, scale):
    meant = format(Decimal(f"{number}e{-scale}"), "f")
    assert keys(number_bytes(number), decimal(str(scale))) == meant
    variable = {"scale": scale, "value": number_bytes(number)}
    assert keys(variable, {"type": "struct", "name": VARIABLE_SCALE}) == meant
    assert keys(variable) == meant


@pytest.mark.parametrize(
    ("value", "schema", "meant"),
    [
        ("AQ==", decimal("0"), "1"),
        ("BLA=", decimal("2"), "12.00"),
        (12.0, decimal("2"), "12.00"),  # decimal.format=NUMERIC
        (12, decimal("0"), "12"),
        (2**64, decimal("0"), str(2**64)),
        ("12.00", TEXT, "12.00"),
        (12.0, DOUBLE, "12"),
        (12.0, None, "12"),
        (7, {"type": "int16"}, "7"),
        (-7, None, "-7"),
        ("AQ==", TEXT, "AQ=="),
        ("V 1", None, "V 1"),
        ("UHJvZHVjdDoxMjM0NTY=", None, "UHJvZHVjdDoxMjM0NTY="),  # text in base64
        (str(DIGITS), {"type": "string", "name": "io.debezium.data.Uuid"}, str(DIGITS)),
        (base64(DIGITS.bytes), BYTES, str(DIGITS)),
        (base64(DIGITS.bytes), None, str(DIGITS)),
        (urlsafe_b64encode(DIGITS.bytes).decode(), None, str(DIGITS)),
        (base64(b"merchant-0000001"), BYTES, "merchant-0000001"),
        (None, BYTES, "None"),
    ],
)
def test_a_key_in_every_form(value, schema, meant):
    assert keys(value, schema) == meant


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("AQ==", None), ("QQ==", None), ("BLA=", None), ("AQIDBAUGBwg=", None),
        (True, None), (True, {"type": "boolean"}), ([1], None), ({"a": 1}, None), (1.5, None), (2.0**53, None),
        (20_000, {"type": "int32", "name": "io.debezium.time.Date"}),
        (1, {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}),
        ("AQ==", decimal("x")), ("AQ==", decimal(None)), ("AQ==", decimal("99999999")), ("AQ==", {**decimal("0"), "parameters": 0}),
        ("", decimal("0")), ("?", decimal("0")), (True, decimal("0")), ([], decimal("0")), (1.5, decimal("2")),
        (base64(bytes(101)), decimal("0")), ({"scale": "0", "value": "AQ=="}, None),
        ({"scale": 10**9, "value": "AQ=="}, None), ({"scale": 0, "value": None}, None),
        ("AQ==", BYTES), ("?", BYTES), (base64(b"\xff" * 16), BYTES), (base64("é".encode()), BYTES),
    ],
)  # fmt: skip
def test_what_may_be_anything_is_refused(value, schema):
    for shape in shapes(value, schema):
        with pytest.raises(InvalidRecord) as refused:
            key_of(change_of(shape), "key", PLACEHOLDER)
        assert refused.value.reason == "wrong_field"


@pytest.mark.parametrize("placeholder", [PLACEHOLDER, "gone", "hex:00ff"])
def test_a_placeholder_is_no_value_in_any_form(placeholder):
    raw = b"\x00\xff" if placeholder.startswith("hex:") else placeholder.encode()
    text = raw.decode(errors="replace")
    for value in (text, base64(raw), urlsafe_b64encode(raw).decode(), raw.hex()):
        for schema in (None, TEXT, BYTES):
            for shape in shapes(value, schema):
                with pytest.raises(UnavailableValue):
                    key_of(change_of(shape), "key", placeholder)


def test_the_row_before_knows_what_the_row_after_does_not():
    def key(before):
        return key_of(change_of(shapes(PLACEHOLDER, TEXT, before)[0]), "key", PLACEHOLDER)

    assert key({"id": "V1", "key": "M1"}) == "M1"
    for before in (None, {}, {"key": None}, {"key": PLACEHOLDER}, "text"):
        with pytest.raises(UnavailableValue):
            key(before)


@pytest.mark.parametrize("schema", ["text", 7, [], {"fields": 7}, {"fields": [7, {"field": []}, {"field": "key"}]}])
def test_a_schema_that_is_none_says_nothing(schema):
    change = change_of({"schema": schema, "payload": {"id": "V1", "key": "M1"}})
    assert key_of(change, "key", PLACEHOLDER) == "M1"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values | st.builds(decimal, json_values))
def test_any_value_with_any_schema_has_a_verdict(value, schema):
    schema = msgspec.json.decode(msgspec.json.encode(schema))
    record = {"schema": {"fields": [{**(schema if isinstance(schema, dict) else {}), "field": "key"}]}}
    try:
        found = key_of(change_of({**record, "payload": {"id": "V1", "key": value}}), "key", PLACEHOLDER)
    except InvalidRecord:
        return
    assert found is None or type(found) in (str, int)
