"""Debezium's changes of merchants and product variants. Pure."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from buffer.ledger.topics.effects import Merchant, Variant
from buffer.streams import Identifier
from config.fields import IDENTIFIER_LENGTH
from config.gate import InvalidRecord
from config.kafka.debezium import DELETED, change_of

NAMELESS = ("t", "m")  # truncations and messages name no row
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


def changed(record: dict[str, Any] | None) -> Changed | None:
    """The row behind a change; None for tombstones, and for truncations and messages, which name no row."""
    try:
        change = change_of(record)
    except InvalidRecord as error:
        raise InvalidRecord("wrong_field", str(error)) from None
    if change is None or change.operation in NAMELESS:
        return None
    try:
        return Changed(msgspec.convert(change.row, SourceRow), change.operation != DELETED)
    except msgspec.ValidationError as error:
        raise InvalidRecord("wrong_field", f"{error} in `{change.place}`") from None
