"""Admin pages of stocks with the stocktake, of items and of locations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from buffer.admin.movements import movements
from buffer.ledger.models import Captured, InventoryItem, InventoryLocation, InventoryStock
from buffer.ledger.stocktake import MadeAlready, take_stock
from config.admin import humanize, svg
from config.admin.forms import ReasonField, WholeField, fault_of
from config.admin.html import chip
from config.admin.levers import Lever, LeverResult, operator_of
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column
from config.letters import Refusal
from outbox.letters.models import DeadLetter

# -- Stocks ------------------------------------------------------------------------------------------------
PAGE = "admin:buffer_inventorystock_change"
MOST_FOUND = 50
UPWARDS = Keyset(descending=False, back="Back", on="On")
STOCKTAKE = Lever(
    name="stocktake", verb="Stocktake", past="Corrected", icon="redo", right="adjust_inventorystock",
    nouns=("stock", "stocks"), promise="", detail="", keep="Leave it",
    act=lambda keys, operator, reason: LeverResult(0, ["A stocktake needs a counted quantity: open the stock's page."]),
    ready=lambda rows: rows, why_not=lambda row: "", least=10,
)  # fmt: skip


SENT_BEFORE = "This form was sent before, with another count. Confirm again to record this one, too."


class StocktakeForm(forms.Form):
    """What was counted, what the page said then, and which correction it is: sent twice it counts once."""

    seen = forms.IntegerField(widget=forms.HiddenInput)
    adjustment = forms.CharField(widget=forms.HiddenInput, required=False)
    counted = WholeField(label="Counted", help_text="What really lies there now.", attrs={"autofocus": True})
    reason = ReasonField(STOCKTAKE.least)


@admin.register(InventoryStock)
class StockAdmin(ReadOnlyAdmin):
    place = 40
    keyset = UPWARDS
    levers = (STOCKTAKE,)
    list_display = ["stock", "count_quantity", "of_item", "lies_at", "changed"]
    list_select_related = ("item", "location")
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste a stock id, capitals included. Exact match."
    empty = ("No stock yet", "A stock appears with its first movement, or when import_stock brings it in.")
    changed = age_column("updated_at", "Last moved")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {}  # a count belongs to one stock

    @admin.display(description="Stock")
    def stock(self, row: InventoryStock) -> str:
        return row.pk

    @admin.display(description="Quantity")
    def count_quantity(self, row: InventoryStock) -> str:
        below = " sw-minus" if row.quantity < 0 else ""
        return format_html('<span class="sw-number{}">{}</span>', below, f"{row.quantity:,}")

    @admin.display(description="Item")
    def of_item(self, row: InventoryStock) -> str:
        return row.item_id or humanize.UNKNOWN

    @admin.display(description="Location")
    def lies_at(self, row: InventoryStock) -> str:
        return str(row.location) if row.location_id and row.location else humanize.UNKNOWN

    def find(self, key: str) -> Iterable[InventoryStock]:
        return list(InventoryStock.objects.filter(pk=key))

    def detail(self, request: HttpRequest, row: InventoryStock) -> dict[str, object]:
        quantity, page = movements(row.pk, request.GET.get("before", ""), request.GET.get("after", ""))
        trend = page.trend
        return {
            "title": f"Stock {row.pk}",
            "quantity": quantity,
            "page": page,
            "item": InventoryItem.objects.filter(pk=row.item_id).first() if row.item_id else None,
            "location": InventoryLocation.objects.filter(pk=row.location_id).first() if row.location_id else None,
            "chart": balance(trend) if len(trend) > 1 else "",
            "low": min(trend, default=0),
            "high": max(trend, default=0),
            "first": trend[0] if trend else 0,
            "last": trend[-1] if trend else 0,
            "letters": list(
                DeadLetter.objects.filter(business_key=row.pk).newest_first().defer("payload", "traceback")[:10]
            ),
        }

    def lever_view(self, request: HttpRequest, name: str) -> HttpResponse:
        if name != STOCKTAKE.name:
            raise Http404
        given = request.POST if request.method == "POST" else request.GET
        row = self.get_queryset(request).filter(pk=given.get("id", "")).first()
        if row is None or not self.has_view_permission(request, row):
            raise Http404
        form = StocktakeForm(request.POST or None)
        if not STOCKTAKE.allowed(request.user, self.opts):
            return self._ask(request, row, form, right=STOCKTAKE.right_in_words(self.opts), status=403)
        if not form.is_valid():
            return self._ask(request, row, form)
        counted = form.cleaned_data
        try:
            done = take_stock(
                row.pk, counted["counted"], counted["seen"], counted["adjustment"], operator_of(request.user), counted["reason"]
            )  # fmt: skip
        except Refusal as refusal:
            made = isinstance(refusal, MadeAlready)
            form.add_error(None, SENT_BEFORE if made else fault_of(refusal))
            row.refresh_from_db()
            return self._ask(request, row, form, anew=made)
        messages.success(request, f"Stock {row.pk} is {done.quantity:,} now; {done.delta:+,} was recorded.")
        return HttpResponseRedirect(reverse(PAGE, args=[quote(row.pk)]))

    def _ask(
        self, request: HttpRequest, row: InventoryStock, form: StocktakeForm, *, right: str = "", status: int = 200, anew: bool = False
    ) -> HttpResponse:  # fmt: skip
        page = {**self.admin_site.each_context(request), "title": f"Stocktake of {row.pk}", "opts": self.opts}
        sent = "" if anew else request.POST.get("adjustment", "")
        context = {
            **page, "row": row, "form": form, "adjustment": sent or f"stocktake-{uuid.uuid4()}",
            "right": right, "role": STOCKTAKE.role(self.opts),
        }  # fmt: skip
        return TemplateResponse(request, "admin/buffer/inventorystock/stocktake.html", context, status=status)


def balance(trend: Sequence[int]) -> SafeString:
    """The line of a balance between its lowest and its highest, and where zero is when it lies between them."""
    low, high = min(trend), max(trend)
    shapes = [svg.level("", 0), svg.level("", svg.HEIGHT)]
    if low < 0 < high:
        shapes.append(svg.level("sw-zero", round(svg.HEIGHT * high / (high - low), 1)))
    label = f"From {trend[0]} to {trend[-1]}, lowest {low}, highest {high}"
    return svg.chart("", [*shapes, svg.line("", svg.points(trend, svg.WIDTH, svg.HEIGHT))], label)


# -- Items and locations -----------------------------------------------------------------------------------
class CapturedAdmin(ReadOnlyAdmin):
    """Rows that follow a table elsewhere."""

    keyset = UPWARDS
    changed = age_column("updated_at", "Changed")

    @admin.display(description="State")
    def state(self, row: Captured) -> str:
        return "At its source" if row.active else chip("discarded", "Deleted at its source")

    def facts(self, row: InventoryItem | InventoryLocation) -> list[tuple[str, object]]:
        position = f"partition {row.source_partition}, offset {row.source_offset:,}"
        change = ("Last change", position if row.source_offset >= 0 else humanize.UNKNOWN)
        merchant = ("Merchant", row.merchant_id or humanize.UNKNOWN)
        return [merchant, ("State", self.state(row)), change, ("Stocks", _stocks(row))]

    def detail(self, request: HttpRequest, row: InventoryItem | InventoryLocation) -> dict[str, object]:
        return {"title": f"{str(self.opts.verbose_name).capitalize()} {row}", "facts": self.facts(row)}


def _stocks(row: InventoryItem | InventoryLocation) -> str:
    """Links to the first few stocks of an item or a location, by their index."""
    keys = row.inventorystock_set.order_by("pk").values_list("pk", flat=True)[: MOST_FOUND + 1]
    links = [format_html('<a href="{}">{}</a>', reverse(PAGE, args=[quote(pk)]), pk) for pk in keys]
    shown = format_html(", ".join(["{}"] * len(links[:MOST_FOUND])), *links[:MOST_FOUND]) if links else "none"
    return format_html("{} and more", shown) if len(links) > MOST_FOUND else shown


@admin.register(InventoryItem)
class ItemAdmin(CapturedAdmin):
    place = 60
    list_display = ["item", "state", "merchant_id", "changed"]
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste an item id, capitals included. Exact match."
    empty = ("No items yet", "An item appears with its first product variant, or when import_stock brings it in.")

    @admin.display(description="Item")
    def item(self, row: InventoryItem) -> str:
        return row.pk

    def find(self, key: str) -> Iterable[InventoryItem]:
        return list(InventoryItem.objects.filter(pk=key))


@admin.register(InventoryLocation)
class LocationAdmin(CapturedAdmin):
    place = 70
    list_display = ["name", "state", "merchant_id", "changed"]
    begins = ["merchant_id"]
    search_fields = ["pk"]
    search_help_text = "Paste a merchant id, capitals included. Exact match."
    empty = ("No locations yet", "Every merchant gets a default one; import_stock brings in others.")

    def find(self, key: str) -> Iterable[InventoryLocation]:
        return list(InventoryLocation.objects.filter(merchant_id=key)[:MOST_FOUND])
