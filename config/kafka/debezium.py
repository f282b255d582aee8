"""Debezium's changes of rows: in an envelope or flat, each with or without its schema. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from config.gate import InvalidRecord

DELETED = "d"
# Created, read by a snapshot, updated, deleted, truncated, a message in the log.
OPERATIONS = ("c", "r", "u", DELETED, "t", "m")


class Change(NamedTuple):
    """What happened to a row, and its columns as they came: nobody has checked them."""

    operation: str
    row: Any
    place: str  # where in the record the row stands, as a JSON path


def change_of(record: dict[str, Any] | None) -> Change | None:
    """The change in a record, None for a tombstone; raises InvalidRecord: `no_row` or `unknown_operation`.

    A flat row was written, unless the fields that its connector adds say otherwise (`__op`, `__deleted`). It may have
    columns named `op`, `schema` or `payload`.
    """
    if record is not None and "payload" in record and record.keys() <= {"schema", "payload"}:
        record = record["payload"]
    if record is None:
        return None
    if not isinstance(record, dict):
        raise InvalidRecord("no_row", "`payload` is not an object")
    if "op" in record and ("id" not in record or record.keys() & {"before", "after"}):
        operation = _known(record["op"])
        gone = operation == DELETED and (record.get("before") is not None or record.get("after") is None)
        place = "before" if gone else "after"
        return Change(operation, record.get(place), f"$.{place}")
    deleted = str(record.get("__deleted")).lower() == "true"
    return Change(DELETED if deleted else _known(record.get("__op", "c")), record, "$")


def _known(operation: object) -> str:
    if isinstance(operation, str) and operation in OPERATIONS:
        return operation
    raise InvalidRecord("unknown_operation", f"the operation {ascii(operation)[:60]} is none of Debezium's")
