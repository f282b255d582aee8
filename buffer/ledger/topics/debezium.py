"""Debezium's changes of merchants and product variants: enveloped or unwrapped, with or without schema. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from buffer.ledger.topics.effects import Merchant, Variant
from buffer.streams import Identifier
from config.fields import IDENTIFIER_LENGTH
from config.gate import InvalidRecord

WRITTEN, DELETED, NAMELESS = ("c", "u", "r"), "d", ("t", "m")  # truncations and messages name no row
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # longer ones fit no column as text


class SourceRow(msgspec.Struct):
    """The columns that matter; keys may be numbers at their source."""

    id: Identifier | Number
    merchant_id: Annotated[str, msgspec.Meta(max_length=IDENTIFIER_LENGTH)] | Number | None = None


class Changed(msgspec.Struct):
    row: SourceRow
    active: bool


def merchant(change: dict[str, Any] | None) -> Merchant | None:
    """Every merchant has a default location, which stays, inactive, when the merchant is deleted."""
    found = changed(change)
    return Merchant(str(found.row.id), found.active) if found else None


def variant(change: dict[str, Any] | None) -> Variant | None:
    """Every product variant is an item."""
    found = changed(change)
    if not found:
        return None
    merchant_id = found.row.merchant_id
    return Variant(str(found.row.id), "" if merchant_id is None else str(merchant_id), found.active)


def changed(change: dict[str, Any] | None) -> Changed | None:
    """The row behind a change; None for tombstones, and for truncations and messages, which name no row."""
    if change is not None and "payload" in change and not change.keys() & {"op", "id"}:
        change = change["payload"]
    if change is None:
        return None
    if not isinstance(change, dict):
        raise InvalidRecord("wrong_field", "Expected `object` - at `$.payload`")
    if "op" in change and ("id" not in change or change.keys() & {"after", "before"}):
        return _of_envelope(change)
    deleted = str(change.get("__deleted", "")).lower() == "true" or change.get("__op") == DELETED
    return Changed(_row(change, "$"), not deleted)


def _of_envelope(change: dict[str, Any]) -> Changed | None:
    operation = change["op"]
    if operation in WRITTEN:
        return Changed(_row(change.get("after"), "$.after"), True)
    if operation == DELETED:
        place = "after" if change.get("before") is None and change.get("after") is not None else "before"
        return Changed(_row(change.get(place), f"$.{place}"), False)
    if operation in NAMELESS:
        return None
    raise InvalidRecord("wrong_field", f"{str(operation)[:30]!r} is no operation - at `$.op`")


def _row(columns: Any, place: str) -> SourceRow:
    try:
        return msgspec.convert(columns, SourceRow)
    except msgspec.ValidationError as error:
        raise InvalidRecord("wrong_field", f"{error} in `{place}`") from None
