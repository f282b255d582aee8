"""Movements for a page: of one stock with the balance after each, or by reference."""

from __future__ import annotations

from typing import Any

from buffer.admin.balance import Cursor, MovementPage, falling, rising
from buffer.ledger.models import InventoryStock, InventoryTracking
from buffer.ledger.topics.effects import part_of
from config.database.snapshot import consistent_snapshot
from config.gate import InvalidRecord

PAGE = 50


def movements(stock_id: str, before: str = "", after: str = "") -> tuple[int, MovementPage]:
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


def _page(lines: list[Any], *, newer: bool, older: bool) -> MovementPage:
    if not lines:
        return MovementPage(lines)
    first, last = lines[0], lines[-1]
    return MovementPage(
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
    except InvalidRecord:
        return found
    orders = rows.filter(reference_type="PURCHASE_ORDER")
    if whole != key:
        found += orders.filter(reference_id=whole)[: most - len(found)]
    # Its receipts: everything that begins with "whole/"; "0" follows "/".
    found += orders.filter(reference_id__gt=f"{whole}/", reference_id__lt=f"{whole}0")[: most - len(found)]
    return found
