"""The statements of the ledger: movements in, once per key; then the stocks by exactly what went in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from buffer.ledger.models import InventoryStock, InventoryTracking
from config.database.upsert import Upsert

NAME = "ledger"  # of this flow, in counters, letters and watermarks

# Reference, stock, delta; partition, offset and timestamp of the record, None if it was none; its hash.
Row = tuple[str, str, int, int | None, int | None, int | None, int]
Group = tuple[str, str]  # topic as the broker knows it, reference type: the same in all rows of a statement

RECORD = Upsert(
    InventoryTracking,
    columns=("reference_id stock_id delta source_partition source_offset source_timestamp payload_hash"),
    constants="reference_type topic topic_id created_at",
    key="reference_id reference_type stock_id",
    update={},
    token="token",  # noqa: S106 (a column)
    returning="reference_id stock_id",
)

# Only read: all that a reference moved.
REFERENCE = Upsert(
    InventoryTracking, columns="reference_id", constants="reference_type", key="reference_id reference_type", update={}
)

# An upsert locks in the order of its rows, which an UPDATE joined to them does not: two workers at the same
# stocks cannot deadlock.
ADJUST = Upsert(
    InventoryStock,
    columns="id quantity",
    constants="created_at updated_at",
    key="id",
    update={"quantity": "old.quantity + new.quantity", "updated_at": "new.updated_at"},
)


class KnownMovement(NamedTuple):
    """What a row of the ledger says when its key comes again: the fields are its columns."""

    delta: int
    topic: str
    topic_id: str
    source_partition: int | None
    source_offset: int | None
    payload_hash: int

    def contradiction(self, row: Row, topic: str, topic_id: str, *, replayed: bool = False) -> str:
        """Why `row`, of the same key, is no redelivery of this one; empty if it is."""
        place = self[1:5]
        if not replayed and place == (topic, topic_id, row[3], row[4]) and self.payload_hash != row[6]:
            return "position_conflict"
        return "" if self.delta == row[2] else "conflicting_effect"


def insert_movements(group: Group, rows: Sequence[Row], topic_id: str, now: datetime) -> list[tuple[str, str]]:
    """Insert rows, sorted by key, whose keys are not known yet; returns the (reference, stock) of those."""
    topic, reference_type = group
    constants = {"reference_type": reference_type, "topic": topic, "topic_id": topic_id, "created_at": now}
    return [tuple(key) for key in RECORD.run(rows, constants)]


def read_known(reference_type: str, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KnownMovement]:
    """What is known of these (reference, stock)."""
    columns = ["reference_id", "stock_id", *KnownMovement._fields]
    rows = RECORD.read(list(keys), columns, {"reference_type": reference_type})
    return {(row[0], row[1]): KnownMovement._make(row[2:]) for row in rows}


def read_stocks(reference_type: str, references: Iterable[str]) -> dict[str, set[str]]:
    """All stocks that these references moved."""
    keys = [(reference,) for reference in references]
    moved: dict[str, set[str]] = {}
    for reference, stock in REFERENCE.read(keys, ["reference_id", "stock_id"], {"reference_type": reference_type}):
        moved.setdefault(reference, set()).add(stock)
    return moved


def adjust_stocks(sums: Mapping[str, int], now: datetime) -> None:
    """Add to the stocks, in sorted order; in the transaction that recorded exactly these sums."""
    ADJUST.run(sorted(sums.items()), {"created_at": now, "updated_at": now})
