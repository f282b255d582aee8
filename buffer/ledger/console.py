"""What the admin asks of the ledger: a page of one stock's movements, a search by reference, the stocktake."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from buffer.ledger.adjust import Adjusted, adjust_stock
from buffer.ledger.balance import Cursor, Page, falling, rising
from buffer.ledger.effects import part_of
from buffer.models import InventoryStock, InventoryTracking
from config.flows import Refusal
from config.gate import Refused
from config.levers import Lever, Outcome
from config.snapshot import consistent_snapshot
from outbox.audit import Operator

PAGE = 50
STOCKTAKE = Lever(
    name="stocktake", verb="Stocktake", past="Corrected", icon="redo", right="adjust_inventorystock",
    nouns=("stock", "stocks"), promise="", detail="", keep="Leave it",
    act=lambda keys, user, reason: Outcome(0, ["A stocktake needs a counted quantity: open the stock's page."]),
    ready=lambda rows: rows, why_not=lambda row: "",
)  # fmt: skip


def movements(stock_id: str, before: str = "", after: str = "") -> tuple[int, Page]:
    """The quantity now and a page of movements, newest first: behind or in front of a cursor, or the newest."""
    with consistent_snapshot():
        quantity = InventoryStock.objects.values_list("quantity", flat=True).get(pk=stock_id)
        newest = InventoryTracking.objects.history_of(stock_id)
        front, back = Cursor.parse(after), Cursor.parse(before)
        if front:
            rows = list(newest.filter(pk__gt=front.pk).order_by("pk")[: PAGE + 1])
            if len(rows) > PAGE:
                lines = rising(rows[:PAGE], front.balance)
                return quantity, _page(lines, newer=True, older=True)
            back = None  # the newest page, whole
        rows = list((newest.filter(pk__lt=back.pk) if back else newest)[: PAGE + 1])
    lines = falling(rows[:PAGE], back.balance if back else quantity)
    return quantity, _page(lines, newer=back is not None, older=len(rows) > PAGE)


def _page(lines: list[Any], *, newer: bool, older: bool) -> Page:
    if not lines:
        return Page(lines)
    first, last = lines[0], lines[-1]
    return Page(
        lines,
        str(Cursor(first.movement.pk, first.balance)) if newer else "",
        str(Cursor(last.movement.pk, last.before)) if older else "",
    )


def of_reference(key: str, most: int) -> list[InventoryTracking]:
    """Movements of whatever has this key: a sale order, a transfer, a purchase order with all its receipts …

    Both are ranges of the primary key: the reference is its first column.
    """
    rows = InventoryTracking.objects.order_by("reference_id", "reference_type", "stock_id")
    found = list(rows.filter(reference_id=key)[:most])
    try:
        whole = part_of(key, None)
    except Refused:
        return found
    orders = rows.filter(reference_type="PURCHASE_ORDER")
    if whole != key:
        found += orders.filter(reference_id=whole)[: most - len(found)]
    # Its receipts: everything that begins with "whole/"; "0" follows "/".
    found += orders.filter(reference_id__gt=f"{whole}/", reference_id__lt=f"{whole}0")[: most - len(found)]
    return found


def take_stock(
    stock_id: str, counted: int, seen: int, adjustment_id: str, operator: Operator, reason: str
) -> Adjusted:
    """Correct a stock to what was counted; raises Refusal when it has moved since `seen` was on the screen."""
    with transaction.atomic():
        quantity = InventoryStock.objects.locked([stock_id]).get(stock_id)
        known = InventoryTracking.objects.of_reference("ADJUSTMENT", adjustment_id).exists()
        if quantity is not None and quantity != seen and not known:
            raise Refusal(
                f"It moved from {seen:,} to {quantity:,} while this page was open. Check the count, then confirm again."
            )
        return adjust_stock(
            stock_id, adjustment_id=adjustment_id, operator=operator, reason=reason, counted=counted
        )
