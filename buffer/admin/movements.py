"""Admin page of movements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from buffer.admin.explain_stock import kind_of, source_of
from buffer.admin.movement_pages import of_reference
from buffer.ledger.models import InventoryStock, InventoryTracking
from config.admin import humanize
from config.admin.read_only import ReadOnlyAdmin, age_column
from outbox.letters.models import DeadLetter

MOST_FOUND = 50


@admin.register(InventoryTracking)
class MovementAdmin(ReadOnlyAdmin):
    place = 50
    list_display = ["reference", "of_stock", "count_delta", "source", "recorded"]
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

    def detail(self, request: HttpRequest, row: InventoryTracking) -> dict[str, Any]:
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
