"""Locations and items follow merchants and product variants; an older change never undoes a newer one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from buffer.events.positions import NEWER, Position
from buffer.ledger.models import InventoryItem, InventoryLocation
from buffer.ledger.topics.effects import Merchant, Variant
from config.database.upsert import Upsert, new
from config.kafka import Record

DEFAULT = "default"
SOURCE = "active topic_id source_partition source_offset source_timestamp"
TIMES = "created_at updated_at"
FOLLOWED = new(f"{SOURCE} updated_at")
LOCATIONS = Upsert(
    InventoryLocation,
    columns=f"merchant_id {SOURCE}",
    constants=f"name is_default {TIMES}",
    key="merchant_id name",
    update=FOLLOWED,
    guard=NEWER,
    token="token",  # noqa: S106 (a column)
    returning="merchant_id",
)


def _items(update: dict[str, str]) -> Upsert:
    return Upsert(
        InventoryItem,
        columns=f"id merchant_id {SOURCE}",
        constants=TIMES,
        key="id",
        update=update,
        guard=NEWER,
        token="token",  # noqa: S106 (a column)
        returning="id",
    )


ITEMS = _items({"merchant_id": "new.merchant_id", **FOLLOWED})
ITEMS_OF_THE_SAME_MERCHANT = _items(FOLLOWED)


class Newest:
    """The newest change of each row in a batch: only that one is written."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self.topic_ids = topic_ids
        self.changes: dict[str, tuple[Position, Record, tuple[Any, ...]]] = {}

    def add(self, key: str, record: Record, values: tuple[Any, ...]) -> None:
        topic_id = self.topic_ids.get(record.topic, "")
        at = Position(topic_id, record.partition, record.offset, record.timestamp)
        known = self.changes.get(key)
        if known is None or at.newer_than(known[0]):
            self.changes[key] = (at, record, (*values, *at))

    def last(self, key: str) -> str | None:
        """The merchant of a variant, as far as this batch has named it."""
        return self.changes[key][2][1] if key in self.changes else None

    def rows(self) -> list[tuple[Any, ...]]:
        return [values for _key, (_at, _record, values) in sorted(self.changes.items())]

    def records(self, keys: Iterable[str]) -> list[Record]:
        return [self.changes[key][1] for key in keys]


def ensure_default_location(merchants: Newest, now: datetime) -> list[Record]:
    """One default location per merchant, in bulk and self-idempotent; returns the records that changed one."""
    constants = {"name": DEFAULT, "is_default": True, "created_at": now, "updated_at": now}
    return merchants.records(key for (key,) in LOCATIONS.run(merchants.rows(), constants))


def ensure_inventory_item(variants: Newest, now: datetime) -> list[Record]:
    """One item per product variant, in bulk and self-idempotent; returns the records that changed one."""
    constants = {"created_at": now, "updated_at": now}
    rows = variants.rows()
    told = ITEMS.run([row for row in rows if row[1] is not None], constants)
    same = [(key, "", *rest) for key, merchant_id, *rest in rows if merchant_id is None]
    return variants.records(key for (key,) in [*told, *ITEMS_OF_THE_SAME_MERCHANT.run(same, constants)])


def mirror(
    changes: Iterable[tuple[Record, Merchant | Variant]], topic_ids: Mapping[str, str], now: datetime
) -> list[Record]:
    """Follow all changes of a batch; returns the records that really changed a row."""
    merchants, variants = Newest(topic_ids), Newest(topic_ids)
    for record, change in changes:
        # 1 and 0: every database unpacks these to its own boolean.
        if isinstance(change, Merchant):
            merchants.add(change.merchant_id, record, (change.merchant_id, int(change.active)))
        else:
            merchant_id = variants.last(change.item_id) if change.merchant_id is None else change.merchant_id
            variants.add(change.item_id, record, (change.item_id, merchant_id, int(change.active)))
    return [*ensure_default_location(merchants, now), *ensure_inventory_item(variants, now)]
