"""Admin pages of movements, of stocks with their running balance and the stocktake, of items and of locations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.db import models
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from buffer.ledger.models import Captured, InventoryItem, InventoryLocation, InventoryStock, InventoryTracking
from buffer.ledger.stocktake import MadeAlready, take_stock
from buffer.ledger.topics import WORDS, part_of, sources, words_of
from config.admin import humanize, svg
from config.admin.filters import ByNumber
from config.admin.forms import ReasonField, WholeField, fault_of
from config.admin.html import chip
from config.admin.levers import Lever, operator_of
from config.admin.lists import Keyset
from config.admin.pages import LeverState, ReadOnlyAdmin, age_column
from config.database.isolation import consistent_snapshot
from config.letters import Refusal
from outbox.letters.models import DeadLetter

STOCK_PAGE = "admin:buffer_inventorystock_change"
MOST_FOUND = 50


# -- Movements ---------------------------------------------------------------------------------------------
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
        url = reverse(STOCK_PAGE, args=[quote(row.stock_id)])
        return format_html('<a href="{}">{}</a>{}', url, row.stock_id, other_word(row.topic))

    @admin.display(description="Change")
    def count_delta(self, row: InventoryTracking) -> str:
        return in_units(f"{row.delta:+,}", row.topic)

    @admin.display(description="Came from")
    def source(self, row: InventoryTracking) -> str:
        return format_html('<span class="sw-code">{}</span>', source_of(row) or humanize.UNKNOWN)

    def find(self, key: str) -> Iterable[InventoryTracking]:
        return of_reference(key, MOST_FOUND)

    def detail(self, request: HttpRequest, row: InventoryTracking) -> dict[str, object]:
        same = InventoryTracking.objects.of_reference(row.reference_type, row.reference_id)
        letters = DeadLetter.objects.filter(business_key=row.reference_id).newest_first()
        stock = with_topics(InventoryStock.objects.all()).filter(pk=row.stock_id).first()
        return {
            "title": f"{kind_of(row)} {row.reference_id}",
            "kind": kind_of(row),
            "source": source_of(row),
            "others": list(same.exclude(stock_id=row.stock_id).order_by("stock_id")[:MOST_FOUND]),
            "letters": list(letters.defer("payload", "traceback")[:10]),
            "stock": stock,
            "words": words_of(row.topic or (stock.topic if stock else "")),
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
    return KINDS.get(row.reference_type) or words_of(row.topic)["reference"] or row.reference_type


def source_of(row: InventoryTracking) -> str:
    """`topic/partition/offset` of the record it came from; empty for what a person or a file did."""
    return f"{row.topic}/{row.source_partition}/{row.source_offset}" if row.topic else ""


# -- Words ---------------------------------------------------------------------------------------------------
def with_topics(stocks: models.QuerySet) -> models.QuerySet:
    """Each stock with the topic that last moved it, as its `topic`: it has the words of that.

    Not looked for where no topic has words of its own.
    """
    newest = InventoryTracking.objects.history_of(OuterRef("pk")).exclude(topic="").values("topic")[:1]
    own = any(source.words != WORDS for source in sources().values())
    return stocks.annotate(topic=Coalesce(Subquery(newest), Value("")) if own else Value(""))


def other_word(topic: str) -> SafeString:
    """A second line that says what a topic moves, where that is no stock."""
    word = words_of(topic)["stock"]
    return format_html('<span class="sw-second">{}</span>', word) if word != WORDS["stock"] else SafeString()


def in_units(number: str, topic: str, more: str = "") -> SafeString:
    return format_html('<span class="sw-number{}">{}</span>', more, f"{number} {words_of(topic)['quantity']}".rstrip())


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


# -- Stocks ------------------------------------------------------------------------------------------------
UPWARDS = Keyset(descending=False, back="Back", on="On")
STOCKTAKE = Lever(
    name="stocktake", verb="Stocktake", past="Corrected", icon="redo", right="adjust_inventorystock",
    nouns=("stock", "stocks"), keep="Leave it", least=10,
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

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return with_topics(super().get_queryset(request))

    @admin.display(description="Stock")
    def stock(self, row: InventoryStock) -> str:
        return format_html("{}{}", row.pk, other_word(row.topic))

    @admin.display(description="Quantity")
    def count_quantity(self, row: InventoryStock) -> str:
        return in_units(f"{row.quantity:,}", row.topic, " sw-minus" if row.quantity < 0 else "")

    @admin.display(description="Item")
    def of_item(self, row: InventoryStock) -> str:
        return row.item_id or humanize.UNKNOWN

    @admin.display(description="Location")
    def lies_at(self, row: InventoryStock) -> str:
        return str(row.location) if row.location_id and row.location else humanize.UNKNOWN

    def find(self, key: str) -> Iterable[InventoryStock]:
        return list(with_topics(InventoryStock.objects.filter(pk=key)))

    def words(self, row: InventoryStock) -> str:
        word = words_of(row.topic)["stock"]
        return f"{word} {row}" if word != WORDS["stock"] else str(row)

    def offered(self, request: HttpRequest, states: list[LeverState], row: InventoryStock) -> list[LeverState]:
        verb = capfirst(words_of(row.topic)["stocktake"])
        return [replace(state, lever=replace(state.lever, verb=verb)) for state in states]

    def detail(self, request: HttpRequest, row: InventoryStock) -> dict[str, object]:
        quantity, page = movements(row.pk, request.GET.get("before", ""), request.GET.get("after", ""))
        trend, words = page.trend, words_of(row.topic)
        return {
            "title": f"{capfirst(words['stock'])} {row.pk}",
            "words": words,
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
                row.pk, counted["counted"], counted["seen"], counted["adjustment"], operator_of(request.user), counted["reason"],
                words_of(row.topic)["stock"],
            )  # fmt: skip
        except Refusal as refusal:
            made = isinstance(refusal, MadeAlready)
            form.add_error(None, SENT_BEFORE if made else fault_of(refusal))
            row.refresh_from_db()
            return self._ask(request, row, form, anew=made)
        stock = capfirst(words_of(row.topic)["stock"])
        messages.success(request, f"{stock} {row.pk} is {done.quantity:,} now; {done.delta:+,} was recorded.")
        return HttpResponseRedirect(reverse(STOCK_PAGE, args=[quote(row.pk)]))

    def _ask(
        self, request: HttpRequest, row: InventoryStock, form: StocktakeForm, *, right: str = "", status: int = 200, anew: bool = False
    ) -> HttpResponse:  # fmt: skip
        stocktake = capfirst(words_of(row.topic)["stocktake"])
        page = {**self.admin_site.each_context(request), "title": f"{stocktake} of {row.pk}", "opts": self.opts}
        sent = "" if anew else request.POST.get("adjustment", "")
        context = {
            **page, "row": row, "form": form, "stocktake": stocktake, "adjustment": sent or f"stocktake-{uuid.uuid4()}",
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
    links = [format_html('<a href="{}">{}</a>', reverse(STOCK_PAGE, args=[quote(pk)]), pk) for pk in keys]
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
