"""Avro with a schema registry: the record as JSON, with the schema that it was written by."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader

from config.formats import Opener
from config.formats.registry import Readers, Schema
from config.gate import InvalidRecord

LONGEST_NAME = 200
NO_BYTES = "has a value that takes no bytes"
FLOATS = ("float", "double")


def avro() -> Opener:
    """`"FORMAT": "avro"`. Times become texts of RFC 3339, decimals texts, bytes base64."""
    return Readers("AVRO", reader_of).read


def reader_of(schema: Schema) -> Callable[[bytes], bytes]:
    """Raises InvalidRecord (`schema_refused`) for a schema by which a small record may become a large one."""
    names: dict[str, dict] = {}
    try:
        for text in (*schema.references, schema.text):
            parsed = parse_schema(json.loads(text), named_schemas=names)
    except Exception as error:  # noqa: BLE001 (it is somebody else's text; fastavro raises of many kinds)
        raise InvalidRecord("schema_refused", f"its Avro schema cannot be read: {error}") from None
    if why := _fault(parsed, names, ()):
        raise InvalidRecord("schema_refused", f"its Avro schema {why}")
    has_floats = any(kind in schema.text + "".join(schema.references) for kind in FLOATS)

    def read(body: bytes) -> bytes:
        stream = io.BytesIO(body)
        try:
            record = schemaless_reader(stream, parsed, None)
        except Exception as error:  # noqa: BLE001 (hostile bytes raise of many kinds)
            raise InvalidRecord(
                "undecodable", f"it is not what its schema says: {type(error).__name__} {error}"
            ) from None
        if left := len(body) - stream.tell():
            raise InvalidRecord("undecodable", f"{left} bytes stand behind what its schema says")
        if has_floats:
            refuse_no_numbers(record)
        return msgspec.json.encode(record)

    return read


def _fault(kind: Any, names: Mapping[str, dict], path: tuple[str, ...]) -> str:
    """Why records of a schema are not read, empty where they are.

    A record may have no more values than bytes, so no type may take none: five bytes became 30 million items. And
    fastavro's stack ends the process for a record that is nested deep enough, so no type may hold itself.
    """
    if isinstance(kind, list):  # which of them it is takes a byte
        return _first(_fault(one, names, path) for one in kind if one != "null")
    if isinstance(kind, str):
        if kind in names:
            return f"holds {kind} within itself" if kind in path else _fault(names[kind], names, path)
        return NO_BYTES if kind == "null" else ""
    match kind["type"]:
        case "array" | "map":
            return _fault(kind.get("items") or kind["values"], names, path)
        case "record":
            return _fault_of_record(kind, names, (*path, kind["name"]))
        case "fixed":
            return "" if kind["size"] > 0 else NO_BYTES
        case "enum":
            return "" if all(len(symbol) <= LONGEST_NAME for symbol in kind["symbols"]) else "has too long a symbol"
        case inner:
            return _fault(inner, names, path)


def _fault_of_record(kind: Any, names: Mapping[str, dict], path: tuple[str, ...]) -> str:
    if any(len(field["name"]) > LONGEST_NAME for field in kind["fields"]):
        return "has too long a name"
    return _first(_fault(field["type"], names, path) for field in kind["fields"]) if kind["fields"] else NO_BYTES


def _first(faults: Iterable[str]) -> str:
    return next(filter(None, faults), "")


def refuse_no_numbers(value: object) -> None:
    """Raise InvalidRecord for NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidRecord("wrong_field", f"{value} is no number that JSON has")
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            refuse_no_numbers(part)
