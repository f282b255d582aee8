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
    place, opened = _place(kind.DESCRIPTOR), _converter(kind.DESCRIPTOR, {})

    def read(body: bytes) -> bytes:
        record = kind()
        try:
            record.ParseFromString(body[_behind_indexes(body, place, kind.DESCRIPTOR) :])
            fields = opened(record, 0)
        except InvalidRecord:
            raise
        except (DecodeError, RecursionError, ValueError) as error:
            raise InvalidRecord("undecodable", f"it is no {kind.DESCRIPTOR.full_name}: {error}") from None
        return msgspec.json.encode(fields)

    return read


def _behind_indexes(body: bytes, place: list[int], kind: Descriptor) -> int:
    """Where the message begins: before it stands which message of its file it is, which must be ours."""
    count, at = _varint(body, 0)
    indexes = []
    for _ in range(min(count, MAX_DEPTH)):
        index, at = _varint(body, at)
        indexes.append(index)
    if (indexes or [0]) != place:
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


# What a value becomes, which stands so many messages deep. None: what it is.
Converter = Callable[[Any, int], object]


def _converter(kind: Descriptor, made: dict[str, Converter]) -> Converter:
    """Of messages of a kind; made once, with those of what they hold, since asking a descriptor takes longer than reading."""
    if kind.full_name in made:
        return made[kind.full_name]
    if kind.full_name == TIMESTAMP:
        return lambda moment, _depth: moment.ToJsonString()
    parts: list[tuple[str, bool, Converter | None]] = []

    def opened(record: Any, depth: int) -> dict[str, object]:
        if depth > MAX_DEPTH:
            raise InvalidRecord("too_deep", f"nested deeper than {MAX_DEPTH} levels")
        fields: dict[str, object] = {}
        for name, may_be_missing, convert in parts:
            if not may_be_missing or record.HasField(name):
                value = getattr(record, name)
                fields[name] = value if convert is None else convert(value, depth)
        return fields

    made[kind.full_name] = opened  # before its parts: it may hold itself
    parts += [(field.name, _may_be_missing(field), _of_field(field, made)) for field in kind.fields]
    return opened


def _may_be_missing(field: FieldDescriptor) -> bool:
    return field.has_presence and not field.is_repeated


def _of_field(field: FieldDescriptor, made: dict[str, Converter]) -> Converter | None:
    message = field.message_type
    if message and message.GetOptions().map_entry:
        one = _of_value(message.fields_by_name["value"], made) or _as_it_is
        return lambda values, depth: {str(key): one(values[key], depth) for key in values}
    if not field.is_repeated:
        return _of_value(field, made)
    each = _of_value(field, made) or _as_it_is
    return lambda values, depth: [each(value, depth) for value in values]


def _of_value(field: FieldDescriptor, made: dict[str, Converter]) -> Converter | None:
    if field.message_type:
        inner = _converter(field.message_type, made)
        return lambda value, depth: inner(value, depth + 1)
    if field.enum_type:
        names = {number: known.name for number, known in field.enum_type.values_by_number.items()}
        return lambda value, _depth: names.get(value, value)
    return BY_TYPE.get(field.type)


def _as_it_is(value: object, _depth: int) -> object:
    return value


def _finite(value: float, _depth: int) -> float:
    refuse_no_numbers(value)
    return value


def _base64(value: bytes, _depth: int) -> str:
    return base64.b64encode(value).decode()


BY_TYPE: dict[int, Converter] = {
    FieldDescriptor.TYPE_DOUBLE: _finite, FieldDescriptor.TYPE_FLOAT: _finite, FieldDescriptor.TYPE_BYTES: _base64,
}  # fmt: skip
