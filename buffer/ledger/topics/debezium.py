"""Debezium's changes of merchants and product variants. Pure, but for the placeholder's setting."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django.conf import settings

from buffer.ledger.topics.effects import Merchant, Variant
from buffer.streams import Identifier
from config.fields import IDENTIFIER_LENGTH
from config.gate import InvalidRecord
from config.kafka.debezium import DELETED, Change, UnavailableValue, change_of, key_of

NAMELESS = ("t", "m")  # truncations and messages name no row
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # longer ones fit no column as text
# What stands in a deleted row where PostgreSQL's default replica identity tells the key alone: null, or the type's zero.
UNTOLD = (None, "", 0, "0")


class SourceRow(msgspec.Struct):
    """The columns that matter; keys may be numbers at their source."""

    id: Identifier | Number
    merchant_id: Annotated[str, msgspec.Meta(max_length=IDENTIFIER_LENGTH)] | Number | None


def merchant(change: dict[str, Any] | None) -> Merchant | None:
    """Every merchant has a default location, which stays, inactive, when the merchant is deleted."""
    row = variant(change)
    return Merchant(row.item_id, row.active) if row else None


def variant(record: dict[str, Any] | None) -> Variant | None:
    """Every product variant is an item. None for tombstones, and for truncations and messages, which name no row."""
    try:
        change = change_of(record)
    except InvalidRecord as error:
        raise InvalidRecord("wrong_field", str(error)) from None
    if change is None or change.operation in NAMELESS:
        return None
    if not isinstance(change.row, dict):
        raise InvalidRecord("wrong_field", f"there is no row in `{change.place}`")
    active = change.operation != DELETED
    columns, unavailable = _keys(change)
    try:
        keys = msgspec.convert(columns, SourceRow)
    except msgspec.ValidationError as error:
        raise InvalidRecord("wrong_field", f"{error} in `{change.place}`") from None
    if unavailable or (not active and keys.merchant_id in UNTOLD):
        return Variant(str(keys.id), None, active)
    return Variant(str(keys.id), "" if keys.merchant_id is None else str(keys.merchant_id), active)


def _keys(change: Change) -> tuple[dict[str, str | int | None], bool]:
    """Both columns, and whether the connector has no value of the merchant."""
    placeholder = settings.DEBEZIUM_UNAVAILABLE_VALUE
    try:
        identity = key_of(change, "id", placeholder)
    except UnavailableValue:
        raise InvalidRecord("wrong_field", "`id` holds the placeholder of an unavailable value") from None
    try:
        return {"id": identity, "merchant_id": key_of(change, "merchant_id", placeholder)}, False
    except UnavailableValue:
        return {"id": identity, "merchant_id": None}, True
