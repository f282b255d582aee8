"""What Kafka Connect writes: Debezium's changes of rows, what their columns say, and values by its converters. Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple
from uuid import RFC_4122, UUID

import msgspec

from config.gate import InvalidRecord
from config.kafka.records import exact_text

# -- Changes of rows -----------------------------------------------------------------------------------------
# In an envelope or flat, each with or without its schema.
DELETED = "d"
# Created, read by a snapshot, updated, deleted, truncated, a message in the log.
OPERATIONS = ("c", "r", "u", DELETED, "t", "m")

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
LONGEST_DECIMAL = 100  # bytes of the number, and digits behind its point; the widest of MySQL has 28 bytes
LONGEST_INTEGER = 8  # bytes
EXACT = 2**53  # a float beyond may be the neighbour of what was meant
URL_SAFE = str.maketrans("-_", "+/")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An integer of a time counts these parts of a second: the type says which.
PARTS = {
    "io.debezium.time.Timestamp": 10**3,
    "org.apache.kafka.connect.data.Timestamp": 10**3,
    "io.debezium.time.MicroTimestamp": 10**6,
    "io.debezium.time.NanoTimestamp": 10**9,
}
DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
SHORTEST_NUMBER = 12  # digits of a text: milliseconds of 1973; eight are a date
# Without a type its size does: these bounds are in the year 5138 of the finer one.
MILLISECONDS, MICROSECONDS = 10**14, 10**17

Schema = Mapping[str, object]  # Connect's, of a column or a row: `type`, `name`, `fields`, …


class Change(NamedTuple):
    """What happened to a row, and its columns as they came: nobody has checked them."""

    operation: str
    row: Any
    place: str  # where in the record the row stands, as a JSON path
    types: Mapping[str, Schema] = {}  # column → its schema, where the record has one
    before: object = None  # the row before an update, where the record has it


class UnavailableValue(Exception):
    """The change does not say what the column holds: only that it was left as it was."""


def change_of(record: dict[str, Any] | None) -> Change | None:
    """The change in a record, None for a tombstone; raises InvalidRecord: `no_row` or `unknown_operation`.

    A flat row was written, unless the fields that its connector adds say otherwise (`__op`, `__deleted`). It may have
    columns named `op`, `schema` or `payload`.
    """
    schema: object = None
    if record is not None and "payload" in record and record.keys() <= {"schema", "payload"}:
        schema, record = record.get("schema"), record["payload"]
    if record is None:
        return None
    if not isinstance(record, dict):
        raise InvalidRecord("no_row", "`payload` is not an object")
    if "op" in record and ("id" not in record or record.keys() & {"before", "after"}):
        operation = _known(record["op"])
        gone = operation == DELETED and (record.get("before") is not None or record.get("after") is None)
        place = "before" if gone else "after"
        before = None if gone else record.get("before")
        return Change(operation, record.get(place), f"$.{place}", _fields(_fields(schema).get(place)), before)
    deleted = str(record.get("__deleted")).lower() == "true"
    return Change(DELETED if deleted else _known(record.get("__op", "c")), record, "$", _fields(schema))


def key_of(change: Change, column: str, placeholder: str) -> str | int | None:
    """A key in a column, the same whatever the connector makes of numbers and bytes; None for null, and without the column.

    A float is a whole number, bytes are a UUID or a text. Raises UnavailableValue for `placeholder`, the connector's
    `unavailable.value.placeholder`, and InvalidRecord for what is no key.
    """
    value = change.row.get(column)
    if isinstance(value, str) and value in _shapes(placeholder):
        value = change.before.get(column) if isinstance(change.before, dict) else None
        if value is None or (isinstance(value, str) and value in _shapes(placeholder)):
            raise UnavailableValue
    return key_in(column, value, change.types.get(column))


def key_in(column: str, value: object, schema: Schema | None) -> str | int | None:
    """The key that a column of this type holds. Raises InvalidRecord for what is no key."""
    try:
        return _key(value, schema)
    except ValueError as error:
        raise InvalidRecord("wrong_field", f"`{column}` is {shown(value)}: {error}") from None


def time_of(column: str, value: object, schema: Schema | None = None) -> datetime | None:
    """Text (timestamptz), or an integer since 1970 (datetime): days, milli-, micro- or nanoseconds by its type, or its size;
    in a header it is a text. Raises InvalidRecord, `bad_` and the column.
    """
    try:
        if value is None:
            return None
        if isinstance(value, str) and value.isdecimal() and len(value) >= SHORTEST_NUMBER:
            value = int(value)
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            # Without a zone it is a datetime column, and Django writes those in UTC.
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            return EPOCH + timedelta(microseconds=_microseconds(value, schema))
    except (ValueError, OverflowError):
        pass
    raise InvalidRecord(f"bad_{column}", f"`{column}` is {shown(value)}, not a time as any connector writes it")


def _known(operation: object) -> str:
    if isinstance(operation, str) and operation in OPERATIONS:
        return operation
    raise InvalidRecord("unknown_operation", f"the operation {shown(operation)} is none of Debezium's")


def _fields(schema: object) -> dict[str, Schema]:
    """The fields of a struct's schema by name; none of what is no schema."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    return {
        field["field"]: field for field in fields if isinstance(field, dict) and isinstance(field.get("field"), str)
    }


@cache
def _shapes(placeholder: str) -> frozenset[str]:
    """As text, and as the bytes of a binary column in each `binary.handling.mode`."""
    raw = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
    return frozenset(
        (raw.decode(errors="replace"), b64encode(raw).decode(), urlsafe_b64encode(raw).decode(), raw.hex())
    )


def _key(value: object, schema: Schema | None) -> str | int | None:
    """Raises ValueError with the reason."""
    if value is None:
        return None
    kind, name = (schema.get("type"), schema.get("name")) if schema else (None, None)
    if schema and name == DECIMAL:
        return _decimal(value, _scale(schema))
    if isinstance(value, dict) and value.keys() == {"scale", "value"} and name in (VARIABLE_SCALE, None):
        return _decimal(value["value"], value["scale"])
    if isinstance(value, str):
        if kind == "bytes":
            return _text_of(_bytes(value))
        return value if kind == "string" else _text_without_type(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("neither a text nor a whole number")
    if name is not None:
        raise ValueError(f"{shown(name)} is no key")
    return _whole(value)


def _scale(schema: Schema) -> object:
    parameters = schema.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    return int(scale) if isinstance(scale, str) and scale.lstrip("-").isdecimal() else scale


def _decimal(value: object, scale: object) -> str:
    """The number as `decimal.handling.mode=string` would write it: 12.00 keeps its zeros."""
    if type(scale) is not int or abs(scale) > LONGEST_DECIMAL:
        raise ValueError(f"a decimal of the scale {shown(scale)}")
    if isinstance(value, str):
        raw = _bytes(value)
        if not 0 < len(raw) <= LONGEST_DECIMAL:
            raise ValueError(f"a decimal of {len(raw)} bytes")
        number = int.from_bytes(raw, signed=True)
    elif isinstance(value, int | float) and not isinstance(value, bool):  # JsonConverter's decimal.format=NUMERIC
        number = _whole(value) * 10 ** max(scale, 0)
        scale = max(scale, 0)
    else:
        raise ValueError("not a decimal")
    return format(Decimal(f"{number}e{-scale}"), "f")


def _whole(value: int | float) -> int:
    if isinstance(value, float) and not (value.is_integer() and abs(value) < EXACT):
        raise ValueError("a float that is no exact whole number")
    return int(value)


def _bytes(value: str) -> bytes:
    try:
        return b64decode(value.translate(URL_SAFE), validate=True)
    except ValueError:
        raise ValueError("not base64, as its type wants") from None


def _text_of(raw: bytes) -> str:
    """What a binary key means; no text looks like a UUID, whose ninth byte is beyond ASCII."""
    if (identity := _uuid(raw)) is not None:
        return identity
    if not raw.isascii() or not raw.decode().isprintable():
        raise ValueError("bytes that are neither a UUID nor a text")
    return raw.decode()


def _text_without_type(value: str) -> str:
    """A text as it stands, and the UUID in the base64 of 16 bytes.

    Padded base64 of a few bytes is how `decimal.handling.mode=precise` writes a number: without a schema nobody can say
    its scale, so it is refused. (Every third length has no padding and reads as a text: docs/ledger.md.)
    """
    if len(value) not in (4, 8, 12, 24) or not value.endswith("="):
        return value
    try:
        raw = _bytes(value)
    except ValueError:
        return value
    if len(raw) > LONGEST_INTEGER:
        return _uuid(raw) or value
    raise ValueError("bytes without a schema: set decimal.handling.mode=string, or value.converter.schemas.enable=true")


def _uuid(raw: bytes) -> str | None:
    identity = UUID(bytes=raw) if len(raw) == 16 else None
    return str(identity) if identity and identity.variant == RFC_4122 and identity.version else None


def shown(value: object) -> str:
    """A value from elsewhere as an error may repeat it: short, and in ASCII."""
    return ascii(value)[:60]


def _microseconds(value: int, schema: Schema | None) -> int:
    name = str(schema and schema.get("name"))
    if parts := PARTS.get(name):
        return value * 10**6 // parts
    if name in DAYS:
        return value * 86_400 * 10**6
    if abs(value) < MILLISECONDS:
        return value * 1000
    return value if abs(value) < MICROSECONDS else value // 1000


# -- Values, keys and headers as Connect's converters write them ----------------------------------------------
MOST_WRAPPED = 3  # a text of JSON, in a text of JSON or in base64


class Converted(NamedTuple):
    """A value as the connector had it, and its schema where the record says one."""

    value: Any
    schema: Schema | None = None


def converted(value: object) -> Converted:
    """A parsed value of JsonConverter: with `schemas.enable`, `{"schema": …, "payload": …}`, or without."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        schema, payload = value["schema"], value["payload"]
        if schema is None or isinstance(schema, dict):
            return Converted(payload, schema)
    return Converted(value)


def text_of(raw: bytes | None) -> Converted:
    """A key or a header: a text (StringConverter, SimpleHeaderConverter, bytes), or JSON (JsonConverter).

    A text in quotes, `null`, and an object of a schema and a payload are JSON; all else stands for itself.
    """
    text = exact_text(raw) if raw else None
    if text is None or text == "null":
        return Converted(None)
    if text[0] not in '"{':
        return Converted(text)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Converted(text)
    plain = converted(found)
    return Converted(text) if isinstance(plain.value, dict) else plain


def object_in(value: object, decode: Callable[[bytes], object]) -> object:
    """The object in a column of JSON: itself, or its text as often as it was wrapped, also in the base64 of bytes.

    Raises what `decode` raises for a text that is no JSON.
    """
    for _ in range(MOST_WRAPPED):
        if not isinstance(value, str):
            break
        value = decode(_bytes_in(value))
    return value


def _bytes_in(text: str) -> bytes:
    """Base64 has neither of the marks that a text of JSON begins with, so that each is known by its first one."""
    try:
        raw = b64decode(text, validate=True)
    except ValueError:
        return text.encode()
    return raw if raw[:1] in (b"{", b'"') else text.encode()


def schema_of(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a field of a struct."""
    return _fields(schema).get(name)
