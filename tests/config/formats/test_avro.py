"""Avro: golden bytes and their JSON, and a verdict for each record and schema that is none."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pytest

from config.formats.avro import avro, reader_of
from config.formats.registry import Schema
from config.gate import InvalidRecord

SCAN = {
    "type": "record", "name": "ParcelScan", "namespace": "acme",
    "fields": [
        {"name": "scan_id", "type": "string"}, {"name": "depot", "type": "string"},
        {"name": "scanned_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "parcels", "type": {"type": "array", "items": {
            "type": "record", "name": "Parcel",
            "fields": [{"name": "parcel_no", "type": "string"}, {"name": "weight_g", "type": "int", "default": 0}],
        }}},
    ],
}  # fmt: skip
GOLDEN = bytes.fromhex("0453310648414d80d8ee96ef66020450310e00")
AS_JSON = (
    b'{"scan_id":"S1","depot":"HAM","scanned_at":"2026-01-01T12:00:00Z","parcels":[{"parcel_no":"P1","weight_g":7}]}'
)


def written(schema, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_golden_bytes_have_the_same_json_in_every_release_of_the_decoder():
    """Else a redelivered record would have another digest, and be a conflict."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    scan = {"scan_id": "S1", "depot": "HAM", "scanned_at": at, "parcels": [{"parcel_no": "P1", "weight_g": 7}]}
    assert written(SCAN, scan) == GOLDEN
    assert reader_of(Schema("AVRO", json.dumps(SCAN)))(GOLDEN) == AS_JSON


KINDS = {
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("12.30"), '"12.30"'),
    "bytes": ("bytes", b"\xff\x00", '"/wA="'),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"ab", '"YWI="'),
    "date": ({"type": "int", "logicalType": "date"}, datetime(2026, 1, 2, tzinfo=UTC).date(), '"2026-01-02"'),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", '"B"'),
    "a union": (["null", "long"], 2**60, str(2**60)),
    "null in a union": (["null", "string"], None, "null"),
    "a map": ({"type": "map", "values": "double"}, {"a": 1.5}, '{"a":1.5}'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_each_kind(kind):
    field, value, text = KINDS[kind]
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": field}]}
    assert reader_of(Schema("AVRO", json.dumps(schema)))(written(schema, {"v": value})).decode() == f'{{"v":{text}}}'


def record(*fields):
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(fields)]}


REFUSED = {
    "an array of nulls": (record({"type": "array", "items": "null"}), "takes no bytes"),
    "a map of empty records": (
        record({"type": "map", "values": {"type": "record", "name": "E", "fields": []}}), "takes no bytes",
    ),
    "a fixed of nothing": (record({"type": "fixed", "name": "F", "size": 0}), "takes no bytes"),
    "a null": (record("null", "int"), "takes no bytes"),
    "itself": (record("R"), "within itself"),
    "itself in a union": (record(["null", "R"]), "within itself"),
    "itself in an array": (record({"type": "array", "items": "R"}), "within itself"),
    "itself by another": (
        record({"type": "record", "name": "S", "fields": [{"name": "r", "type": ["null", "R"]}]}), "within itself",
    ),
    "a long symbol": (record({"type": "enum", "name": "E", "symbols": ["A" * 201]}), "too long a"),
    "a long name": ({"type": "record", "name": "R", "fields": [{"name": "f" * 201, "type": "int"}]}, "too long a"),
    "a type that is not there": (record("Nowhere"), "cannot be read"),
    "no schema": ({"type": "record"}, "cannot be read"),
    "a number": (7, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_whose_records_may_be_larger_or_deeper_than_they_look_is_refused(case):
    schema, why = REFUSED[case]
    with pytest.raises(InvalidRecord, match=why) as refusal:
        reader_of(Schema("AVRO", json.dumps(schema)))
    assert refusal.value.reason == "schema_refused"


def test_a_record_that_is_nested_deep_enough_would_end_the_process():
    """Why no type may hold itself: the library's stack has no limit of its own."""
    script = (
        "import io, fastavro; s = fastavro.parse_schema({'type': 'record', 'name': 'N', 'fields': "
        "[{'name': 'n', 'type': ['null', 'N']}]}); fastavro.schemaless_reader(io.BytesIO(b'\\x02' * 2_000_000 + b'\\0'), s, None)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode != 0


def test_schemas_that_others_refer_to_are_read_first():
    parcel = SCAN["fields"][3]["type"]["items"]
    scan = {
        **SCAN,
        "fields": [*SCAN["fields"][:3], {"name": "parcels", "type": {"type": "array", "items": "acme.Parcel"}}],
    }
    schema = Schema("AVRO", json.dumps(scan), (json.dumps({**parcel, "namespace": "acme"}),))
    assert reader_of(schema)(GOLDEN) == AS_JSON


RECORDS = {
    "cut off": (GOLDEN[:-3], "undecodable"),
    "bytes behind it": (GOLDEN + b"xx", "undecodable"),
    "no text": (GOLDEN.replace(b"HAM", b"\xff\xfeM"), "undecodable"),
    "a length below zero": (b"\x03" + GOLDEN[1:], "undecodable"),
    "a length beyond everything": (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + GOLDEN[1:], "undecodable"),
    "more parcels than bytes": (GOLDEN[:13] + b"\xfe\xff\xff\xff\x0f" + GOLDEN[14:], "undecodable"),
    "a time beyond the calendar": (
        GOLDEN[:7] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + GOLDEN[13:],
        "undecodable",
    ),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_record_that_is_not_what_its_schema_says(case):
    body, reason = RECORDS[case]
    with pytest.raises(InvalidRecord) as refusal:
        reader_of(Schema("AVRO", json.dumps(SCAN)))(body)
    assert refusal.value.reason == reason


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_is_refused(number):
    schema = record({"type": "array", "items": "double"})
    with pytest.raises(InvalidRecord, match="no number"):
        reader_of(Schema("AVRO", json.dumps(schema)))(written(schema, {"f0": [1.0, number]}))


def test_a_framed_record_is_opened_by_the_schema_that_it_names(schemas, framed):
    schemas.by_id[1] = {"schema": json.dumps(SCAN)}
    wider = {**SCAN, "fields": [*SCAN["fields"], {"name": "lane", "type": "string"}]}
    schemas.by_id[2] = {"schema": json.dumps(wider)}
    schemas.by_id[3] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    opened = avro()
    for _ in range(3):
        assert opened(framed(GOLDEN)) == AS_JSON
    assert opened(framed(GOLDEN + b"\x041A", 2)) == AS_JSON[:-1] + b',"lane":"1A"}'
    assert schemas.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    for value, reason in (
        (framed(GOLDEN, 3), "wrong_format"), (framed(GOLDEN, 9), "unknown_schema"), (b'{"scan_id": "json"}', "not_framed"),
        (b"\x00", "not_framed"), (framed(b""), "not_framed"),
    ):  # fmt: skip
        with pytest.raises(InvalidRecord) as refusal:
            opened(value)
        assert refusal.value.reason == reason, value
