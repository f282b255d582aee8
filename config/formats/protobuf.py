"""Protobuf with a schema registry: the record as JSON, by the class of the message that the topic is declared with."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from django.utils.module_loading import import_string
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from config.formats import Opener
from config.formats.avro import refuse_no_numbers
from config.formats.registry import Readers, Schema
from config.gate import MAX_DEPTH, InvalidRecord

MOST_VARINT = 10  # bytes
TIMESTAMP = "google.protobuf.Timestamp"


def protobuf(message: str) -> Opener:
    """`"FORMAT": "protobuf"` with `"FORMAT_OPTIONS": {"message": "acme.points_pb2.PointsEarned"}`.

    Fields keep the names of the .proto file; 64-bit numbers stay numbers, timestamps become texts of RFC 3339, enums
    their names, bytes base64. A field without presence has its default.
    """
    kind: type[Message] = import_string(message)
    return Readers("PROTOBUF", lambda schema: reader_of(schema, kind)).read


def reader_of(schema: Schema, kind: type[Message]) -> Callable[[bytes], bytes]:
    def read(body: bytes) -> bytes:
        record = kind()
        try:
            record.ParseFromString(body[_behind_indexes(body, kind.DESCRIPTOR) :])
            fields = _fields(record, 0)
        except InvalidRecord:
            raise
        except (DecodeError, RecursionError, ValueError) as error:
            raise InvalidRecord("undecodable", f"it is no {kind.DESCRIPTOR.full_name}: {error}") from None
        refuse_no_numbers(fields)
        return msgspec.json.encode(fields)

    return read


def _behind_indexes(body: bytes, kind: Descriptor) -> int:
    """Where the message begins: before it stands which message of its file it is, which must be ours."""
    count, at = _varint(body, 0)
    indexes = []
    for _ in range(min(count, MAX_DEPTH)):
        index, at = _varint(body, at)
        indexes.append(index)
    if (indexes or [0]) != _place(kind):
        raise InvalidRecord("wrong_format", f"it is another message of the file than {kind.full_name}")
    return at


def _place(kind: Descriptor) -> list[int]:
    """Which message of its file it is, from the outermost on."""
    outer = kind.containing_type
    siblings = outer.nested_types if outer else kind.file.message_types_by_name.values()
    return [*(_place(outer) if outer else ()), [sibling.name for sibling in siblings].index(kind.name)]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    value = 0
    for shift, byte in enumerate(body[at : at + MOST_VARINT]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value >> 1, at + shift + 1
    raise InvalidRecord("undecodable", "the record ends before its message")


def _fields(record: Message, depth: int) -> dict[str, Any] | str:
    if depth > MAX_DEPTH:
        raise InvalidRecord("too_deep", f"nested deeper than {MAX_DEPTH} levels")
    if record.DESCRIPTOR.full_name == TIMESTAMP:
        return record.ToJsonString()
    fields: dict[str, Any] = {}
    for field in record.DESCRIPTOR.fields:
        value = getattr(record, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            fields[field.name] = {str(key): _value(value[key], of_value, depth) for key in value}
        elif field.is_repeated:
            fields[field.name] = [_value(one, field, depth) for one in value]
        elif not field.has_presence or record.HasField(field.name):
            fields[field.name] = _value(value, field, depth)
    return fields


def _value(value: Any, field: FieldDescriptor, depth: int) -> object:
    if field.message_type:
        return _fields(value, depth + 1)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
