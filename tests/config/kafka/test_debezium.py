"""A change is understood the same way wherever it is read: strictly, and in every shape Debezium gives it."""

import pytest

from config.gate import InvalidRecord
from config.kafka.debezium import OPERATIONS, Change, change_of

ROW = {"id": "V1", "name": "x"}


def wrapped(record):
    """The same with its schema, and as a payload alone."""
    return [{"schema": {"type": "struct"}, "payload": record}, {"payload": record}]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_envelope_tells_its_operation_and_its_row(operation):
    gone = operation == "d"
    record = {"op": operation, "before": ROW if gone else None, "after": None if gone else ROW}
    change = Change(operation, ROW, "$.before" if gone else "$.after")
    assert [change_of(shape) for shape in (record, *wrapped(record))] == [change] * 3


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_flat_row_tells_its_operation_in_an_added_field(operation):
    record = {**ROW, "__op": operation, "__deleted": "false"}
    assert [change_of(shape) for shape in (record, *wrapped(record))] == [Change(operation, record, "$")] * 3


@pytest.mark.parametrize("deleted", ["true", "TRUE", True])
def test_a_row_that_was_rewritten_as_deleted_is(deleted):
    record = {**ROW, "__op": "u", "__deleted": deleted}
    assert change_of(record) == Change("d", record, "$")


def test_a_bare_row_was_written():
    assert change_of(ROW) == Change("c", ROW, "$")
    assert change_of({}) == Change("c", {}, "$")


@pytest.mark.parametrize("record", [None, *wrapped(None)])
def test_a_tombstone_is_no_change(record):
    assert change_of(record) is None


@pytest.mark.parametrize("column", ["op", "schema", "payload"])
def test_a_flat_row_may_have_a_column_of_that_name(column):
    record = {**ROW, column: {"id": "other"}}
    assert change_of(record) == Change("c", record, "$")


def test_an_envelope_may_lie_beside_an_id():
    assert change_of({"id": 1, "op": "u", "after": ROW}) == Change("u", ROW, "$.after")


def test_what_stands_in_an_envelope_is_not_unwrapped_once_more():
    inner = {"schema": {}, "payload": ROW}
    assert change_of({"op": "c", "after": inner}) == Change("c", inner, "$.after")
    assert change_of({"schema": {}, "payload": inner}) == Change("c", inner, "$")


def test_a_delete_names_its_row_where_there_is_one():
    assert change_of({"op": "d", "after": ROW}) == Change("d", ROW, "$.after")
    assert change_of({"op": "d", "before": ROW, "after": {}}) == Change("d", ROW, "$.before")
    assert change_of({"op": "d"}) == Change("d", None, "$.before")


@pytest.mark.parametrize("operation", ["x", "", "C", None, 1, ["c"], {"c": "c"}])
def test_any_other_operation_is_refused(operation):
    for record in ({"op": operation, "after": ROW}, {**ROW, "__op": operation}):
        with pytest.raises(InvalidRecord) as refused:
            change_of(record)
        assert refused.value.reason == "unknown_operation"


@pytest.mark.parametrize("payload", ["text", 7, [ROW], True])
def test_a_payload_that_is_no_object_is_refused(payload):
    for record in wrapped(payload):
        with pytest.raises(InvalidRecord) as refused:
            change_of(record)
        assert refused.value.reason == "no_row"
