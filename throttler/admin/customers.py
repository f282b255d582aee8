"""Admin page of customers: who waits, why, until when, and the levers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, cast

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode

from config.admin import humanize
from config.admin.filters import Segments
from config.admin.html import chip, moment
from config.admin.lists import Keyset
from config.admin.pages import KeysetChangeList, ReadOnlyAdmin
from config.admin.search import MOST_BEGUN, begun_in_words
from config.admin.svg import Point
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from throttler.admin import charts, customer_text, levers, waiting_messages
from throttler.admin.levers import CustomerLeverPage
from throttler.customers.changes import SUBJECT, fault_of_customer, without_row
from throttler.customers.models import Customer, CustomerQuerySet
from throttler.customers.situation import Situation, customer_of, has_row, situation_of, situations_of, ttl_of
from throttler.lanes.models import Lane
from throttler.limits.rate import BadRates, Rates, parse_rates

PAGE = "admin:throttler_customer_change"
LARGEST = Keyset("backlog", ties_opposed=True, back="More", on="Fewer")
BY_ID = Keyset(descending=False, back="Back", on="On")
HISTORY = timedelta(days=7)
MOST_ACTIONS = 10
GOOD_NEWS = {
    "waiting": ("Nobody waits", "A customer appears here with the first message over their rate."),
    "held": ("Nobody is on hold", "Who is held keeps what arrives in the buffer until somebody resumes."),
}


class CustomersShown(Segments):
    title = "show"
    parameter_name = "show"
    choices_in_words = [("waiting", "Waiting"), ("held", "On hold"), ("all", "All with own terms")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        return cast(CustomerQuerySet, queryset).held() if self.chosen() == "held" else queryset


class WithSituation(TypedDict):
    """What the list reads of its customers at once."""

    situation: Situation


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    Listed = WithAnnotations[Customer, WithSituation]


class CustomerChangeList(KeysetChangeList):
    """Who waits comes from the lanes, the largest backlog first, with or without a row of their own."""

    @property
    def empty(self) -> tuple[str, str] | None:
        """That nobody waits, or is on hold; that nobody has own terms is neither good nor bad."""
        show = self.params.get("show", "")
        return None if show == "all" else GOOD_NEWS.get(show, GOOD_NEWS["waiting"])

    def get_results(self, request: HttpRequest) -> None:
        page: Any = self.model_admin
        if self.query:
            self.queryset = Customer.objects.none()
        elif page.shows_waiting(self):
            self.queryset = Lane.objects.waiting()
        super().get_results(request)
        if self.query:
            self.result_list = list(page.find(self.query)) or page.begun(request, self.query, MOST_BEGUN)
            if self.result_list and self.result_list[0].pk != self.query:
                self.narrowed = [*self.narrowed, begun_in_words(self.query, len(self.result_list))]
        elif page.shows_waiting(self):
            self.result_list = _with_rows(lane.customer_id for lane in self.result_list)
        _with_situations(self.result_list)
        self.result_count = len(self.result_list)


def _with_rows(ids: Iterable[str]) -> list[Customer]:
    """The customers with these ids, each once, also who has no row."""
    names = list(dict.fromkeys(ids))
    rows = Customer.objects.in_bulk(names)
    return [rows.get(name) or without_row(name, timezone.now()) for name in names]


def _with_situations(rows: Sequence[Listed]) -> None:
    for row, situation in zip(rows, situations_of(rows, timezone.now()), strict=True):
        row.situation = situation


@admin.register(Customer)
class CustomerAdmin(ReadOnlyAdmin):
    place = 10
    list_display = ["customer", "state", "count_waiting", "oldest", "rate", "lives"]
    list_filter = [CustomersShown]
    begins = ["pk"]
    search_fields = ["pk"]
    empty = ("No customer has own terms yet", "They come with import_customers, or when somebody changes a rate.")
    search_help_text = "Paste a customer id, capitals included. Exact match, whether they wait or not."

    # -- The list -------------------------------------------------------------------------------
    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[KeysetChangeList]:
        return CustomerChangeList

    def shows_waiting(self, changelist: ChangeList) -> bool:
        return changelist.params.get("show", "waiting") not in ("held", "all")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        return LARGEST if self.shows_waiting(changelist) and not changelist.query else BY_ID

    @admin.display(description="Customer")
    def customer(self, row: Listed) -> str:
        return row.pk if has_row(row) else format_html('{}<span class="sw-second">default terms</span>', row.pk)

    @admin.display(description="State")
    def state(self, row: Listed) -> str:
        return chip(customer_text.state_of(row.situation))

    @admin.display(description="Waiting")
    def count_waiting(self, row: Listed) -> str:
        return format_html('<span class="sw-number">{}</span>', f"{row.situation.traffic.backlog:,}")

    @admin.display(description="Oldest")
    def oldest(self, row: Listed) -> str:
        traffic, now = row.situation.traffic, row.situation.now
        if not traffic.backlog:
            return humanize.UNKNOWN
        when = now - timedelta(seconds=traffic.oldest)
        return moment(when, humanize.ago(when, now))

    @admin.display(description="Rate")
    def rate(self, row: Listed) -> str:
        return customer_text.spaced(row.rates)

    @admin.display(description="Messages live")
    def lives(self, row: Listed) -> str:
        return humanize.length(ttl_of(row))

    def find(self, key: str) -> Iterable[Customer]:
        row = customer_of(key)
        return [row] if row else []

    def begun(self, request: HttpRequest, text: str, most: int) -> list[Customer]:
        """With own terms, or with a lane."""
        names = {name for rows in self.begun_rows(text) for name in rows.values_list("customer_id", flat=True)[:most]}
        return _with_rows(sorted(names)[:most])

    def ranges(self) -> Iterable[tuple[models.QuerySet, str]]:
        return [*super().ranges(), (Lane.objects.all(), "customer_id")]

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet, search_term: str
    ) -> tuple[models.QuerySet, bool]:
        return queryset, False  # CustomerChangeList asks `find`: who has no row is found, too

    # -- One customer ---------------------------------------------------------------------------
    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Customer | None:
        return customer_of(object_id)

    def detail(self, request: HttpRequest, row: Customer) -> dict[str, object]:
        situation = situation_of(row, database_now())
        may_read = request.user.has_perm("outbox.view_operatoraction")
        history = history_of(row.pk, situation.now)
        return {
            "title": row.pk,
            "now": situation.now,
            "situation": situation,
            "new_row": not has_row(row),
            "state": customer_text.state_of(situation),
            "callouts": customer_text.callouts(situation),
            "owners": customer_text.owners_line(situation),
            "lever_states": levers.lever_states(situation, request.user, self.opts, lambda one: self.url_of(one, row)),
            "allowed": customer_text.allowed(situation),
            "quotas": customer_text.quotas(situation),
            "arriving": _number(situation.timeline.arriving),
            "growth": customer_text.growth(situation.growth),
            "grows": situation.growth >= 1,
            "trend": [one.backlog for one in situation.timeline.charted],
            "ttl": ttl_of(row),
            "uses": customer_text.uses(situation),
            "tried": customer_text.tried_rates(situation)
            if situation.owned and situation.traffic.needed and not situation.rates.held
            else [],
            "rate_url": self.url_of(levers.RATE, row),
            "rate_chart": charts.rate_chart(situation.timeline, allowed_since(situation, history)),
            "age_chart": charts.age_chart(situation, forecast=situation.owned),
            "history": [customer_text.history_line(action, row.pk) for action in history] if may_read else None,
            "messages_url": waiting_messages.list_url(row),
            "may_browse": request.user.has_perm("throttler.view_overflowmessage"),
        }

    # -- Levers and messages --------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("messages/", view(self.messages_view), name="throttler_customer_messages"),
            path("message/", view(self.message_view), name="throttler_customer_message"),
            *super().get_urls(),
        ]

    def url_of(self, one: levers.CustomerLever, row: Customer) -> str:
        return f"{self.lever_url(one.lever)}?{urlencode({'id': row.pk})}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and levers.RATE.lever.allowed(request.user, self.opts)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, object] | None = None
    ) -> HttpResponse:
        """Asks for the id; the form of the rate does the rest."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": "Add a customer"}
        return TemplateResponse(
            request, "admin/throttler/customer/add.html", {**context, "rate_url": self.lever_url(levers.RATE.lever)}
        )

    def lever_view(self, request: HttpRequest, name: str) -> HttpResponse:
        one = next((one for one in levers.LEVERS if one.lever.name == name), None)
        given = request.POST if request.method == "POST" else request.GET
        customer_id = given.get("id", "").strip() if "new" in given else given.get("id", "")
        row = self.asked(request, customer_id) if one else None
        if row is None and one is levers.RATE and "new" in given and not fault_of_customer(customer_id):
            row = without_row(customer_id, timezone.now())
        if one is None or row is None:
            raise Http404
        context = {**self.admin_site.each_context(request), "opts": self.opts}
        page = CustomerLeverPage(
            request, one, situation_of(row, database_now()), context, reverse(PAGE, args=[quote(row.pk)])
        )
        return page.answer(self.opts)

    def asked(self, request: HttpRequest, customer_id: str) -> Customer | None:
        """The customer that a page besides its own is about. Raises PermissionDenied."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return customer_of(customer_id)

    def messages_view(self, request: HttpRequest) -> HttpResponse:
        return self._overflow(request, waiting_messages.list_page)

    def message_view(self, request: HttpRequest) -> HttpResponse:
        return self._overflow(request, waiting_messages.message_page)

    def _overflow(self, request: HttpRequest, show: Callable[..., HttpResponse]) -> HttpResponse:
        row = self.asked(request, request.GET.get("customer", ""))
        if not request.user.has_perm("throttler.view_overflowmessage"):
            raise PermissionDenied
        if row is None:
            raise Http404
        context = {**self.admin_site.each_context(request), "opts": self.opts, "row": row, "now": database_now()}
        return show(request, row, context)


def history_of(customer_id: str, now: datetime) -> list[OperatorAction]:
    """What people did to a customer within a week, newest first."""
    recent = OperatorAction.objects.about(SUBJECT, customer_id, MOST_ACTIONS)
    return list(recent.filter(created_at__gte=now - HISTORY)[:MOST_ACTIONS])


def allowed_since(situation: Situation, history: Iterable[OperatorAction]) -> list[Point]:
    """Messages a second that the shortest window allowed, and from when on, oldest first."""
    steps, value = [], _per_second(situation.rates)
    for action in history:
        if changed := customer_text.rates_changed(action, situation.row.pk):
            steps.append((action.created_at, value))
            value = _read(changed[0])
    return [(situation.now - charts.AHEAD * 8, value), *reversed(steps)]


def _read(text: str) -> float:
    try:
        return _per_second(parse_rates(text))
    except BadRates:
        return 0.0


def _per_second(rates: Rates) -> float:
    return 0.0 if rates.held else rates.windows[0].limit * 1_000_000 / rates.windows[0].period_us


def _number(value: float | None) -> str:
    return humanize.UNKNOWN if value is None else charts.per_second(value)
