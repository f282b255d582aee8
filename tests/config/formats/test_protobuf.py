"""Protobuf: golden bytes and their JSON, and a verdict for each record that is none."""

import json

import pytest

from config.formats.protobuf import protobuf
from config.gate import InvalidRecord
from tests.config.formats.messages import Line, Node, PointsEarned

OPENED = {
    "earning_id": "E1", "points": 2**60, "kind": "GIFT", "at": "2026-01-01T12:00:00Z",
    "lines": [{"sku": "S1", "quantity": 3}], "notes": {"a": 1}, "rate": 0.5, "seal": "/wA=",
}  # fmt: skip
GOLDEN = bytes.fromhex(
    "0a024531108080808080808080101801220608c0c3d9ca062a060a025331100332050a0161100139000000000000e03f4202ff00"
)


@pytest.fixture
def opened(schemas, framed):
    schemas.by_id[1] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    schemas.by_id[2] = {"schema": '"string"'}

    def run(body, message="PointsEarned", indexes=b"\x00", number=1):
        return json.loads(protobuf(f"tests.config.formats.messages.{message}")(framed(indexes + body, number)))

    return run


def points():
    made = PointsEarned(earning_id="E1", points=2**60, kind=1, notes={"a": 1}, rate=0.5, seal=b"\xff\x00")
    made.at.FromJsonString("2026-01-01T12:00:00Z")
    made.lines.add(sku="S1", quantity=3)
    return made


def test_golden_bytes_have_the_same_json_in_every_release_of_the_decoder(opened):
    assert points().SerializeToString(deterministic=True) == GOLDEN
    assert opened(GOLDEN) == OPENED


def test_what_is_left_out_has_its_default_or_is_left_out(opened):
    assert opened(b"") == {
        "earning_id": "", "points": 0, "kind": "UNKNOWN", "lines": [], "notes": {}, "rate": 0.0, "seal": "",
    }  # fmt: skip
    assert opened(PointsEarned(hint="", kind=7).SerializeToString())["hint"] == ""
    assert opened(PointsEarned(kind=7).SerializeToString())["kind"] == 7


def test_which_message_of_the_file_it_is_stands_before_it(opened):
    line = Line(sku="S1", quantity=3).SerializeToString()
    assert opened(line, "Line", b"\x04\x00\x00") == {"sku": "S1", "quantity": 3}
    for indexes in (b"\x00", b"\x04\x00\x02", b"\x02\x02"):
        with pytest.raises(InvalidRecord) as refusal:
            opened(line, "Line", indexes)
        assert refusal.value.reason == "wrong_format"


def nested(depth):
    node = outer = Node()
    for _ in range(depth):
        node = node.next
        node.SetInParent()
    return outer.SerializeToString()


@pytest.mark.parametrize(
    ("body", "more", "reason"),
    [
        (GOLDEN[:-3], {}, "undecodable"),
        (b"\xff\xff\xff", {}, "undecodable"),
        (b"\x0a\x02\xff\xfe", {}, "undecodable"),
        (PointsEarned(rate=float("nan")).SerializeToString(), {}, "wrong_field"),
        (GOLDEN, {"number": 2}, "wrong_format"),
        (GOLDEN, {"number": 9}, "unknown_schema"),
        (b"", {"indexes": b""}, "not_framed"),
        (b"", {"indexes": b"\xff" * 20}, "undecodable"),
        (nested(50), {"message": "Node", "indexes": b"\x02\x02"}, "too_deep"),
        (b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", {}, "undecodable"),
    ],
)
def test_a_record_that_is_none_has_a_verdict(opened, body, more, reason):
    with pytest.raises(InvalidRecord) as refusal:
        opened(body, **more)
    assert refusal.value.reason == reason
