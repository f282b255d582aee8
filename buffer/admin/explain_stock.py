"""The ledger in words."""

from __future__ import annotations

from buffer.ledger.models import InventoryTracking

KINDS = {
    "SALE_ORDER": "Sale order",
    "PURCHASE_ORDER": "Purchase order",
    "KITCHEN_TICKET_ITEM": "Kitchen ticket item",
    "TRANSFER": "Transfer",
    "OPENING": "Opening stock",
    "ADJUSTMENT": "Stocktake",
}


def kind_of(row: InventoryTracking) -> str:
    """What moved the stock."""
    return KINDS.get(row.reference_type, row.reference_type)


def source_of(row: InventoryTracking) -> str:
    """`topic/partition/offset` of the record it came from; empty for what a person or a file did."""
    return f"{row.topic}/{row.source_partition}/{row.source_offset}" if row.topic else ""
