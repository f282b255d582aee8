"""Verdicts on records of the outbox topic; the samples are bytes that real connectors wrote (Debezium 3.5.0)."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.gate import InvalidRecord
from config.kafka import Replayed
from outbox.workers.change_capture import MAX_BYTES, Hint, Skip, message_in, read_change

SAMPLES = json.loads((Path(__file__).parents[1] / "debezium_samples.json").read_text())
VERDICTS = {"u": Skip.UPDATE, "d": Skip.DELETE, "t": Skip.TRUNCATE, "tombstone": Skip.TOMBSTONE}

ID = UUID("01a1ff7b-599a-76e9-8da3-f3c85801b1ff")
AT = datetime(2026, 11, 21, 19, 0, 0, 123456, tzinfo=UTC)
ROW = {"id": str(ID), "event_type": "order.paid", "created_at": "2026-11-21T19:00:00.123456Z"}
HINT = Hint(ID, "order.paid", AT)


def told(record: object) -> Hint | Skip:
    return read_change(json.dumps(record).encode())


def refusal(value: bytes) -> str:
    with pytest.raises(InvalidRecord) as refused:
        read_change(value)
    return refused.value.reason


def named(sample: dict[str, str]) -> str:
    return "-".join(sample[word] for word in ("server", "shape", "op"))


@pytest.mark.parametrize("sample", SAMPLES, ids=named)
def test_what_the_real_connectors_wrote(sample):
    value = sample["value"]
    # Without the envelope an update looks like an insert: one more hint, which the claim refuses.
    if sample["op"] in VERDICTS:
        assert read_change(value and value.encode()) is VERDICTS[sample["op"]]
    else:
        hint = read_change(value.encode())
        assert hint.id == UUID(sample["key"])
        assert hint.event_type == {"c": "order.paid", "r": "order.snapshot"}[sample["op"]]
        # A UUIDv7 begins with the millisecond of its creation, just before the row's.
        born = datetime.fromtimestamp((hint.id.int >> 80) / 1000, UTC)
        assert timedelta() <= hint.created_at - born < timedelta(seconds=1)


def test_the_samples_hold_every_server_and_operation():
    seen = {(sample["server"], sample["op"]) for sample in SAMPLES if sample["shape"] == "envelope"}
    operations = ("r", "c", "u", "d", "t", "tombstone")
    assert seen == {(server, op) for server in ("postgres", "mariadb", "mysql") for op in operations}


@pytest.mark.parametrize(
    "identity",
    [*(str(ID), str(ID).upper(), ID.hex), *(b64encode(ID.bytes).decode(), urlsafe_b64encode(ID.bytes).decode())],
)
def test_an_id_is_read_as_any_column_type_writes_it(identity):
    assert told({**ROW, "id": identity}) == HINT


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        # MariaDB 10.11 and Debezium 3.5.0: what was inserted, and what the record said.
        ("0001a1ff-80ab-aa71-c685-2482b7b1ffff", "01a1ff80abaa71c6852482b7b1ffff00"),
        ("000001a1-ff80-abaa-71c6-852482b7b1ff", "01a1ff80abaa71c6852482b7b1ff0000"),
        ("00000000-01a1-ff80-abaa-71c6852482b7", "01a1ff80abaa71c6852482b700000000"),
        # Moved, it is still of version 7.
        ("0001a200-6da4-7475-b897-6e6f371b7f58", "01a2006da47475b8976e6f371b7f5800"),
        # Nothing was moved here.
        ("01a1ff80-abaa-71c6-8524-82b7b1ff0020", "01a1ff80abaa71c6852482b7b1ff0020"),
        ("00a1ff80-abaa-71c6-8524-82b7b1ffff00", "00a1ff80abaa71c6852482b7b1ffff00"),
    ],
)
def test_zero_bytes_at_the_end_of_an_id_are_put_back(written, meant):
    assert told({**ROW, "id": written}).id == UUID(meant)


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        ("2026-11-21T19:00:00.123456Z", AT),
        ("2026-11-21T20:00:00.123456+01:00", AT),
        ("2026-11-21T19:00:00.123456", AT),
        (1795287600123456, AT),
        (1795287600123456789, AT),
        (1795287600123, AT.replace(microsecond=123000)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (None, None),
    ],
)
def test_a_time_is_read_as_any_column_type_writes_it(created_at, expected):
    assert told({**ROW, "created_at": created_at}) == HINT._replace(created_at=expected)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("io.debezium.time.Timestamp", 1795287600123),
        ("org.apache.kafka.connect.data.Timestamp", 1795287600123),
        ("io.debezium.time.MicroTimestamp", 1795287600123000),
        ("io.debezium.time.NanoTimestamp", 1795287600123000000),
        # By their size these would be others.
        ("io.debezium.time.Timestamp", 123_456_789_012_345),
        ("io.debezium.time.MicroTimestamp", 12_345_678_901_234),
        ("io.debezium.time.NanoTimestamp", 12_345_678_901_234_567),
    ],
)
def test_a_time_is_read_by_its_type(name, count):
    fields = [{"type": "int64", "name": name, "field": "created_at"}]
    unit = {"T": 10**3, "M": 10**6, "N": 10**9}[name.rpartition(".")[2][0]]
    meant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=count * 10**6 // unit)
    row = {**ROW, "created_at": count}
    schema = {"fields": [{"field": "after", "fields": fields}]}
    assert told({"schema": {"fields": fields}, "payload": row}).created_at == meant
    assert told({"schema": schema, "payload": {"op": "c", "after": row}}).created_at == meant


def test_a_row_without_its_time_is_still_a_hint():
    assert told({"id": ID.hex, "event_type": "order.paid"}) == HINT._replace(created_at=None)


def test_columns_that_should_not_be_there_change_nothing():
    assert told({**ROW, "payload": "{}", "schema": "x", "state": "sent"}) == HINT
    assert told({"op": "c", "after": {**ROW, "payload": "{}"}}) == HINT


def test_null_beside_a_schema_is_a_tombstone():
    assert told({"schema": None, "payload": None}) is Skip.TOMBSTONE


def test_a_message_in_the_log_is_skipped():
    assert told({"op": "m", "message": {"prefix": "spillway", "content": ""}}) is Skip.MESSAGE


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([ROW], "wrong_field"),
        ("text", "wrong_field"),
        ({}, "no_row"),
        ({"ts_ms": 1795287600123}, "no_row"),  # a heartbeat that was routed here
        ({"op": "c", "after": None}, "no_row"),
        ({"op": "c", "after": [1]}, "no_row"),
        ({"schema": {}, "payload": "text"}, "no_row"),
        ({"op": "x", "after": ROW}, "unknown_operation"),
        ({"op": ["c"], "after": ROW}, "unknown_operation"),
        ({**ROW, "id": None}, "bad_id"),
        ({**ROW, "id": 7}, "bad_id"),
        ({**ROW, "id": f"{{{ID}}}"}, "bad_id"),
        ({**ROW, "id": f"urn:uuid:{ID}"}, "bad_id"),
        ({**ROW, "id": ID.hex[:31]}, "bad_id"),
        ({**ROW, "id": "0" * 32}, "bad_id"),
        ({**ROW, "id": "00a1ff80-abaa-41c6-8524-82b7b1ffff01"}, "bad_id"),  # version 4
        ({**ROW, "id": "ffffffff-ffff-ffff-ffff-ffffffffffff"}, "bad_id"),
        ({**ROW, "id": b64encode(bytes(16)).decode()}, "bad_id"),
        ({**ROW, "event_type": None}, "bad_event_type"),
        ({**ROW, "event_type": ""}, "bad_event_type"),
        ({**ROW, "event_type": "x" * 101}, "bad_event_type"),
        ({**ROW, "created_at": "yesterday"}, "bad_created_at"),
        ({**ROW, "created_at": 1.5}, "bad_created_at"),
        ({**ROW, "created_at": True}, "bad_created_at"),
        ({**ROW, "created_at": 10**30}, "bad_created_at"),
        ({**ROW, "created_at": "0001-01-01T00:00:00+14:00"}, "bad_created_at"),
    ],
)
def test_everything_else_is_refused_with_a_stable_reason(record, reason):
    assert refusal(json.dumps(record).encode()) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"id":', "invalid_json"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "too_deep"),
        (b'{"event_type": "a\\u0000b"}', "nul_character"),
        (b'{"id": "' + b"x" * MAX_BYTES + b'"}', "too_large"),
    ],
)
def test_bytes_that_are_no_record_are_refused_by_the_gate(value, reason):
    assert refusal(value) == reason


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_refusal(value):
    try:
        assert isinstance(read_change(value), Hint | Skip)
    except InvalidRecord as refused:
        assert refused.reason


FIELDS = ("schema", "payload", "op", "__op", "__deleted", "after", "before", "id", "event_type", "created_at")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("a1-:Z=", max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values | st.just(ROW) | st.sampled_from("crudt")))
def test_no_record_raises_anything_but_a_refusal(record):
    try:
        assert isinstance(told(record), Hint | Skip)
    except InvalidRecord as refused:
        assert len(str(refused)) < 200


version_7 = st.uuids().map(lambda one: UUID(int=one.int & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62))
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(
    version_7,
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=zones),
    st.sampled_from([str, lambda one: one.hex, lambda one: b64encode(one.bytes).decode()]),
    st.booleans(),
    st.booleans(),
)
def test_every_shape_of_one_row_is_the_same_hint(identity, at, written, enveloped, described):
    record = {"id": written(identity), "event_type": "a", "created_at": at.isoformat()}
    if enveloped:
        record = {"before": None, "after": record, "source": {}, "op": "c", "ts_ms": 1}
    if described:
        record = {"schema": {"type": "struct"}, "payload": record}
    assert told(record) == Hint(identity, "a", at)


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)))
def test_integers_of_any_precision_are_the_same_moment(at):
    micro = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    moments = [told({**ROW, "created_at": n}).created_at for n in (micro // 1000, micro, micro * 1000)]
    exact = at.replace(tzinfo=UTC)
    assert moments == [exact.replace(microsecond=exact.microsecond // 1000 * 1000), exact, exact]


def record(value: bytes | None, key: bytes | None = None) -> Replayed:
    return Replayed("outbox", 0, 7, 0, key, value)


@pytest.mark.parametrize(
    ("value", "key", "named"),
    [
        ({**ROW, "event_type": ""}, None, str(ID)),
        ({"op": "c", "after": {**ROW, "created_at": "noon"}}, None, str(ID)),
        ({**ROW, "__op": "?"}, {"id": str(ID)}, str(ID)),
        ("no row", {"payload": {"id": b64encode(ID.bytes).decode()}}, str(ID)),
        ("no row", None, ""),
        ({**ROW, "id": "anna@shop.example"}, None, ""),
        ({"op": "c", "after": [1]}, {"id": 7}, ""),
    ],
)
def test_a_record_that_is_refused_names_its_message_all_the_same(value, key, named):
    letter = record(json.dumps(value).encode(), key and json.dumps(key).encode())
    assert message_in(letter) == named


@given(st.binary(), st.none() | st.binary())
def test_no_bytes_of_a_key_or_value_raise_anything(value, key):
    message_in(record(value, key))
