"""Admin page of movements, and the running balance of one stock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from buffer.ledger.models import InventoryStock, InventoryTracking
from buffer.ledger.topics import part_of
from config.admin import humanize
from config.admin.filters import ByNumber
from config.admin.pages import ReadOnlyAdmin, age_column
from config.database.isolation import consistent_snapshot
from outbox.letters.models import DeadLetter

MOST_FOUND = 50


@admin.register(InventoryTracking)
class MovementAdmin(ReadOnlyAdmin):
    place = 50
    happened = ByNumber("recorded", "created_at")
    list_display = ["reference", "of_stock", "count_delta", "source", "recorded"]
    begins = ["reference_id"]
    search_fields = ["pk"]
    search_help_text = "Paste a sale order, purchase order, ticket item or transfer, capitals included. Exact match."
    empty = ("No movements yet", "Each payment, receipt, ticket item and transfer leaves one per stock.")
    recorded = age_column("created_at", "Recorded")

    @admin.display(description="Reference")
    def reference(self, row: InventoryTracking) -> str:
        return format_html('{}<span class="sw-second">{}</span>', row.reference_id, kind_of(row))

    @admin.display(description="Stock")
    def of_stock(self, row: InventoryTracking) -> str:
        url = reverse("admin:buffer_inventorystock_change", args=[quote(row.stock_id)])
        return format_html('<a href="{}">{}</a>', url, row.stock_id)

    @admin.display(description="Change")
    def count_delta(self, row: InventoryTracking) -> str:
        return format_html('<span class="sw-number">{}</span>', f"{row.delta:+,}")

    @admin.display(description="Came from")
    def source(self, row: InventoryTracking) -> str:
        return format_html('<span class="sw-code">{}</span>', source_of(row) or humanize.UNKNOWN)

    def find(self, key: str) -> Iterable[InventoryTracking]:
        return of_reference(key, MOST_FOUND)

    def detail(self, request: HttpRequest, row: InventoryTracking) -> dict[str, object]:
        same = InventoryTracking.objects.of_reference(row.reference_type, row.reference_id)
        letters = DeadLetter.objects.filter(business_key=row.reference_id).newest_first()
        return {
            "title": f"{kind_of(row)} {row.reference_id}",
            "kind": kind_of(row),
            "source": source_of(row),
            "others": list(same.exclude(stock_id=row.stock_id).order_by("stock_id")[:MOST_FOUND]),
            "letters": list(letters.defer("payload", "traceback")[:10]),
            "stock": InventoryStock.objects.filter(pk=row.stock_id).first(),
        }


def of_reference(key: str, most: int) -> list[InventoryTracking]:
    """Movements of whatever has this key: a sale order, a transfer, a purchase order with all its receipts …

    Both are ranges of the primary key: the reference is its first column.
    """
    rows = InventoryTracking.objects.order_by("reference_id", "reference_type", "stock_id")
    hits = list(rows.filter(reference_id=key)[:most])
    whole = part_of(key, None)
    orders = rows.filter(reference_type="PURCHASE_ORDER")
    if whole != key:
        hits += orders.filter(reference_id=whole)[: most - len(hits)]
    # Its receipts: everything that begins with "whole/"; "0" follows "/".
    hits += orders.filter(reference_id__gt=f"{whole}/", reference_id__lt=f"{whole}0")[: most - len(hits)]
    return hits


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


# -- The running balance of a stock ------------------------------------------------------------------------
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


def _page(lines: list[BalanceLine], *, newer: bool, older: bool) -> MovementPage:
    if not lines:
        return MovementPage(lines)
    first, last = lines[0], lines[-1]
    return MovementPage(
        lines,
        str(Cursor(first.movement.pk, first.balance)) if newer else "",
        str(Cursor(last.movement.pk, last.before)) if older else "",
    )


def falling(rows: Sequence[InventoryTracking], balance: int) -> list[BalanceLine]:
    """Lines of `rows`, newest first; `balance` is what was there after the newest of them."""
    lines = []
    for row in rows:
        lines.append(BalanceLine(row, balance))
        balance -= row.delta
    return lines


def rising(rows: Sequence[InventoryTracking], balance: int) -> list[BalanceLine]:
    """Lines of `rows`, oldest first; `balance` is what was there before the oldest. Newest first again."""
    lines = []
    for row in rows:
        balance += row.delta
        lines.append(BalanceLine(row, balance))
    return lines[::-1]


@dataclass(frozen=True)
class MovementPage:
    """Some movements, newest first, and the cursors of the pages beside it; empty when there is none."""

    lines: Sequence[BalanceLine]
    newer: str = ""
    older: str = ""

    @property
    def trend(self) -> list[int]:
        """Balances in the order of time, from before the first movement on."""
        return [*(line.before for line in self.lines[-1:]), *(line.balance for line in self.lines[::-1])]


@dataclass(frozen=True)
class BalanceLine:
    """A movement and what was there after it."""

    movement: InventoryTracking
    balance: int

    @property
    def kind(self) -> str:
        return kind_of(self.movement)

    @property
    def source(self) -> str:
        return source_of(self.movement)

    @property
    def before(self) -> int:
        return self.balance - self.movement.delta


BETWEEN = "~"


@dataclass(frozen=True)
class Cursor:
    """A place between two movements, and the balance at it: no page has to sum up those before it."""

    pk: int
    balance: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """None for anything that no page has written."""
        pk, _, balance = text.partition(BETWEEN)
        try:
            return cls(int(pk), int(balance))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.pk}{BETWEEN}{self.balance}"
