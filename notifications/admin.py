"""Admin pages: orders with their mails, and API tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html

from config import words
from config.keyset import Keyset, KeysetChangeList
from config.templatetags.spillway import chip
from config.window import ReadOnlyAdmin, Segments, age_column
from notifications import mail_admin, recipients  # noqa: F401 (importing it registers its pages)
from notifications.console import REVOKE
from notifications.currencies import money
from notifications.history import Mail, mails_of
from notifications.models import ApiToken, Order
from notifications.recipients import masked
from notifications.tokens import issue
from outbox.console import is_uuid, may_see_payloads, operator_of

MOST_FOUND = 20


# -- Orders ------------------------------------------------------------------------------------------------
class StatusOfOrder(Segments):
    title = "status"
    parameter_name = "status"
    field = "status"
    choices_in_words = [
        ("all", "All"),
        *((status.value, status.label.capitalize()) for status in Order.Status),
    ]


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin):
    place = 10
    list_display = ["order", "state", "total", "refunded", "created"]
    list_filter = [StatusOfOrder]
    search_fields = ["pk"]
    search_help_text = "Paste an order id or an e-mail address. Exact match, in the chosen status."
    empty = ("No orders here", "An order appears here when a program creates it through the API.")
    created = age_column("created_at", "Created")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        return Keyset(back="Newer", on="Older")

    @admin.display(description="Order")
    def order(self, row: Order) -> str:
        line = '<span class="sw-code">{}</span><span class="sw-second">{}</span>'
        return format_html(line, row.pk, masked(row.user_email))

    @admin.display(description="Status")
    def state(self, row: Order) -> str:
        return chip(row.status)

    @admin.display(description="Total")
    def total(self, row: Order) -> str:
        return format_html('<span class="sw-number">{}</span>', money(row.total_amount, row.currency))

    @admin.display(description="Refunded")
    def refunded(self, row: Order) -> str:
        given = money(row.refunded_amount, row.currency) if row.refunded_amount else words.UNKNOWN
        return format_html('<span class="sw-number">{}</span>', given)

    def find(self, key: str) -> Iterable[Order]:
        if is_uuid(key):
            return list(Order.objects.filter(pk=key))
        try:
            return list(Order.objects.of(recipients.check(key)).newest_first()[:MOST_FOUND])
        except ValueError:
            return ()

    def detail(self, request: HttpRequest, row: Order) -> dict[str, Any]:
        may_see = may_see_payloads(request)
        return {
            "title": f"Order of {money(row.total_amount, row.currency)}",
            "address": row.user_email if may_see else masked(row.user_email),
            "may_see": may_see,
            "total": money(row.total_amount, row.currency),
            "refunded": money(row.refunded_amount, row.currency),
            "left": money(row.total_amount - row.refunded_amount, row.currency),
            "mails": [(mail, _url_of(mail), _amount(mail, row)) for mail in reversed(mails_of([row]))],
        }


def _amount(mail: Mail, row: Order) -> str:
    return money(mail.event.amount, row.currency) if mail.event.amount else ""


def _url_of(mail: Mail) -> str:
    """The message's own page; empty when retention took it."""
    return reverse("admin:outbox_outboxmessage_change", args=[mail.event.message_id]) if mail.message else ""


# -- API tokens --------------------------------------------------------------------------------------------
class NewToken(forms.ModelForm):
    class Meta:
        model = ApiToken
        fields = ["name", "customer_id", "rate"]


class StateOfToken(Segments):
    title = "show"
    parameter_name = "show"
    choices_in_words = [("valid", "Valid"), ("all", "All")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        return queryset.valid() if self.chosen() == "valid" else queryset  # type: ignore[attr-defined]


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    place = 90
    levers = (REVOKE,)
    form = NewToken
    list_display = ["name", "state", "belongs", "speed", "used", "made"]
    list_filter = [StateOfToken]
    empty = ("No tokens", "Programs need one to call the API.")
    used = age_column("last_used_at", "Last used")
    made = age_column("created_at", "Made")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **more: Any
    ) -> Any:
        # The next page shows the token, whichever button was pressed: so there is one.
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **more)

    @admin.display(description="State")
    def state(self, row: ApiToken) -> str:
        return chip("revoked" if row.revoked_at else "valid")

    @admin.display(description="For")
    def belongs(self, row: ApiToken) -> str:
        return f"customer {row.customer_id}" if row.customer_id else "orders"

    @admin.display(description="Requests a second")
    def speed(self, row: ApiToken) -> str:
        return words.rate(row.allowed_rate) if row.allowed_rate else "unlimited"

    def detail(self, request: HttpRequest, row: ApiToken) -> dict[str, Any]:
        facts = [
            ("For", self.belongs(row)),
            ("Begins with", f"spillway_{row.prefix}_"),
            ("Requests a second", self.speed(row)),
            ("Made", f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC by {row.created_by}"),
            ("Last used", f"{row.last_used_at:%Y-%m-%d %H:%M} UTC" if row.last_used_at else "never"),
        ]
        if row.revoked_at:
            facts.append(("Revoked", f"{row.revoked_at:%Y-%m-%d %H:%M:%S} UTC by {row.revoked_by}"))
        return {"title": row.name, "facts": facts, "state": "revoked" if row.revoked_at else "valid"}

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        token, text = issue(obj.name, operator_of(request.user), customer_id=obj.customer_id, rate=obj.rate)
        obj.__dict__.update(token.__dict__)
        request.issued_token = text  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The one page that shows it: never through a message, which would be stored in a cookie or a session."""
        context = {
            **self.admin_site.each_context(request), "title": f"Token {obj.name}", "opts": self.opts, "row": obj,
            "token": request.issued_token,  # type: ignore[attr-defined]
        }  # fmt: skip
        response = TemplateResponse(request, "admin/notifications/apitoken/issued.html", context)
        add_never_cache_headers(response)
        return response
