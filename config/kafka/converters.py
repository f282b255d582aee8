"""What the converters of Kafka Connect write: the plain value of a record's value, key or header, and its schema. Pure."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from config.kafka.debezium import Schema
from config.kafka.records import exact_text

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
    except (BadBase64, ValueError):
        return text.encode()
    return raw if raw[:1] in (b"{", b'"') else text.encode()


def schema_of(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a field of a struct."""
    fields = schema.get("fields") if schema else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("field") == name:
            return field
    return None
