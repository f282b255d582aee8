"""Admin pages of items and locations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from buffer.admin.stocks import UPWARDS, _stocks
from buffer.ledger.models import InventoryItem, InventoryLocation
from config.admin import humanize
from config.admin.html import chip
from config.admin.read_only import ReadOnlyAdmin, age_column

MOST_FOUND = 50


class CapturedAdmin(ReadOnlyAdmin):
    """Rows that follow a table elsewhere."""

    keyset = UPWARDS
    changed = age_column("updated_at", "Changed")

    @admin.display(description="State")
    def state(self, row: Any) -> str:
        return "At its source" if row.active else chip("discarded", "Deleted at its source")

    def facts(self, row: Any) -> list[tuple[str, Any]]:
        position = f"partition {row.source_partition}, offset {row.source_offset:,}"
        change = ("Last change", position if row.source_offset >= 0 else humanize.UNKNOWN)
        merchant = ("Merchant", row.merchant_id or humanize.UNKNOWN)
        return [merchant, ("State", self.state(row)), change, ("Stocks", _stocks(row))]

    def detail(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"title": f"{str(self.opts.verbose_name).capitalize()} {row}", "facts": self.facts(row)}


@admin.register(InventoryItem)
class ItemAdmin(CapturedAdmin):
    place = 60
    list_display = ["item", "state", "merchant_id", "changed"]
    search_fields = ["pk"]
    search_help_text = "Paste an item id, capitals included. Exact match."
    empty = (
        "No items yet",
        "An item appears with its first product variant, or when import_stock brings it in.",
    )

    @admin.display(description="Item")
    def item(self, row: InventoryItem) -> str:
        return row.pk

    def find(self, key: str) -> Iterable[InventoryItem]:
        return list(InventoryItem.objects.filter(pk=key))


@admin.register(InventoryLocation)
class LocationAdmin(CapturedAdmin):
    place = 70
    list_display = ["name", "state", "merchant_id", "changed"]
    search_fields = ["pk"]
    search_help_text = "Paste a merchant id, capitals included. Exact match."
    empty = ("No locations yet", "Every merchant gets a default one; import_stock brings in others.")

    def find(self, key: str) -> Iterable[InventoryLocation]:
        return list(InventoryLocation.objects.filter(merchant_id=key)[:MOST_FOUND])
