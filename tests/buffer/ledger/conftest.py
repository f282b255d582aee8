"""Messages of the stock topics, records of them, and a handler on the test database."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from django.db import transaction

from buffer.ledger.batch import Applied
from buffer.ledger.handler import Track
from buffer.models import InventoryStock, InventoryTracking
from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from outbox.letters.models import DeadLetter
from tests.conftest import TOPIC_ID, move_on

PAID, RECEIVED = "PAYMENT_SUCCESS", "PURCHASE_ORDER_RECEIVED"
COOKED, MOVED = "KITCHEN_TICKET_ITEM_STATUS_CHANGED", "MATERIAL_TRANSFERRED"
MERCHANTS, VARIANTS = "merchant-cdc", "product-variant-cdc"
_offsets = count()


def lines(**items: int) -> list[dict[str, Any]]:
    return [{"stockId": stock, "quantity": quantity} for stock, quantity in items.items()]


def paid(order: str, **items: int) -> tuple[str, dict[str, Any]]:
    return PAID, {"saleOrderId": order, "merchantId": "M1", "items": lines(**items)}


def received(order: str, receipt: str | None = None, **items: int) -> tuple[str, dict[str, Any]]:
    more = {} if receipt is None else {"receiptId": receipt}
    return RECEIVED, {"purchaseOrderId": order, "items": lines(**items), **more}


def cooked(item: str, status: str = "DONE", **materials: int) -> tuple[str, dict[str, Any]]:
    used = [{"materialStockId": stock, "quantity": quantity} for stock, quantity in materials.items()]
    return COOKED, {"kitchenTicketItemId": item, "status": status, "materials": used}


def moved(transfer: str, source: str, target: str, quantity: int) -> tuple[str, dict[str, Any]]:
    return MOVED, {"transferId": transfer, "fromStockId": source, "toStockId": target, "quantity": quantity}


def record(message: tuple[str, Any], offset: int | None = None, partition: int = 0, timestamp: int = 0) -> Replayed:
    """A record; without an offset it stands behind every earlier one."""
    topic, value = message
    raw = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    number = next(_offsets) if offset is None else offset
    return Replayed(topic, partition, number, timestamp or 1_700_000_000_000 + number, b"k", raw)


def batch_of(
    *found: Replayed, revision: int = 0, topic_id: str = TOPIC_ID, handler: Track | None = None
) -> RecordBatch:
    batch = RecordBatch(list(found), {one.topic: topic_id for one in found}, revision=revision)
    batch.prepared = (handler or Track()).prepare(batch)
    return batch


def write(*found: Replayed, handler: Track | None = None, **more: Any) -> Applied:
    """Store records as the consumer would."""
    handler = handler or Track()
    batch = batch_of(*found, handler=handler, **more)
    with transaction.atomic():
        now = database_now()
        applied = handler.apply(batch, now)
        move_on(handler.group, batch, now)
    return applied


def stocks(**quantities: int) -> None:
    InventoryStock.objects.bulk_create(InventoryStock(id=name, quantity=0) for name in quantities)
    if any(quantities.values()):
        write(*[record(received(f"open-{name}", **{name: number})) for name, number in quantities.items() if number])


def quantities() -> dict[str, int]:
    return dict(InventoryStock.objects.values_list("pk", "quantity"))


def ledger() -> dict[tuple[str, str, str], int]:
    rows = InventoryTracking.objects.values_list("reference_type", "reference_id", "stock_id", "delta")
    return {row[:3]: row[3] for row in rows}


def sums() -> dict[str, int]:
    """What the ledger says the quantities are."""
    found: dict[str, int] = {}
    for (_, _, stock), delta in ledger().items():
        found[stock] = found.get(stock, 0) + delta
    return found


def outcomes(applied: Applied) -> dict[str, int]:
    return {name: applied.number(name) for name in ("applied", "duplicate", "skipped", "parked")}


def letters() -> list[str]:
    return sorted(DeadLetter.objects.values_list("reason", flat=True))


@pytest.fixture
def policy(settings: Any) -> Callable[..., None]:
    def choose(**chosen: str) -> None:
        for name, value in chosen.items():
            setattr(settings, f"LEDGER_{name.upper()}", value)

    return choose
