"""Admin page of API tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers

from config.admin import humanize
from config.admin.filters import Segments
from config.admin.html import chip
from config.admin.levers import Lever, operator_of
from config.admin.pages import ReadOnlyAdmin, age_column
from notifications.api.tokens import (
    ApiToken,
    ApiTokenQuerySet,
    fault_of_channels,
    fault_of_customer,
    fault_of_name,
    issue,
    revoke,
)


def _why_not(token: ApiToken) -> str:
    return f"Revoked {humanize.ago(token.revoked_at, timezone.now())} by {token.revoked_by}."


REVOKE = Lever(
    name="revoke", verb="Revoke", past="Revoked", icon="ban",
    right="revoke_apitoken", keep="Keep it",
    nouns=("token", "tokens"),
    promise="From the next request on it opens nothing.",
    detail="There is no way back: whoever still needs access gets a new token.",
    act=revoke, ready=lambda rows: rows.filter(revoked_at=None), why_not=_why_not, harm=True, least=10,
)  # fmt: skip


class NewToken(forms.ModelForm):
    class Meta:
        model = ApiToken
        fields = ["name", "customer_id", "channels", "rate", "expires_at"]

    def clean_name(self) -> str:
        return self._taken("name", fault_of_name)

    def clean_customer_id(self) -> str:
        return self._taken("customer_id", fault_of_customer)

    def clean_channels(self) -> str:
        return self._taken("channels", fault_of_channels)

    def _taken(self, field: str, fault_of: Callable[[str], str]) -> str:
        text: str = self.cleaned_data[field]
        if fault := fault_of(text):
            raise forms.ValidationError(f"Needed: {fault}.")
        return text

    def clean_expires_at(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["expires_at"]
        if until and until <= timezone.now():
            raise forms.ValidationError("This time is over.")
        return until


class StateOfToken(Segments):
    title = "show"
    parameter_name = "show"
    choices_in_words = [("valid", "Valid"), ("all", "All")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if isinstance(queryset, ApiTokenQuerySet) and self.chosen() == "valid":
            return queryset.valid(timezone.now())
        return queryset


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    place = 90
    levers = (REVOKE,)
    form = NewToken
    list_display = ["name", "state", "belongs", "speed", "used", "made", "ends"]
    list_filter = [StateOfToken]
    empty = ("No tokens", "Programs need one to call the API.")
    used = age_column("last_used_at", "Last used")
    made = age_column("created_at", "Made")
    ends = age_column("expires_at", "Expires")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, object], *args: Any, **more: Any
    ) -> HttpResponse:
        # One save button: the next page shows the token whichever was pressed.
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().render_change_form(request, context, *args, **more)

    @admin.display(description="State")
    def state(self, row: ApiToken) -> str:
        return chip(row.state(timezone.now()))

    @admin.display(description="For")
    def belongs(self, row: ApiToken) -> str:
        customer = [f"customer {row.customer_id}"] if row.customer_id else []
        messages = [f"messages of {', '.join(row.allowed_channels)}"] if row.channels else []
        return ", ".join([*customer, *messages]) or "orders"

    @admin.display(description="Requests a second")
    def speed(self, row: ApiToken) -> str:
        return humanize.rate(row.allowed_rate) if row.allowed_rate else "unlimited"

    def detail(self, request: HttpRequest, row: ApiToken) -> dict[str, object]:
        facts = [
            ("For", self.belongs(row)),
            ("Begins with", f"spillway_{row.prefix}_"),
            ("Requests a second", self.speed(row)),
            ("Made", f"{humanize.stamp(row.created_at)} by {row.created_by}"),
            ("Last used", f"{humanize.stamp(row.last_used_at)}" if row.last_used_at else "never"),
        ]
        facts.append(("Expires", f"{humanize.stamp(row.expires_at)}" if row.expires_at else "never"))
        if row.revoked_at:
            facts.append(("Revoked", f"{humanize.stamp(row.revoked_at)} by {row.revoked_by}"))
        return {"title": row.name, "facts": facts, "state": row.state(timezone.now())}

    def save_model(self, request: HttpRequest, obj: ApiToken, form: object, change: bool) -> None:
        limits: dict[str, Any] = {"customer_id": obj.customer_id, "channels": obj.channels, "rate": obj.rate}
        token, text = issue(obj.name, operator_of(request.user), expires_at=obj.expires_at, **limits)
        obj.__dict__.update(token.__dict__, text=text)

    def response_add(self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None) -> HttpResponse:
        """Show the token once, on this page: a message would be stored in a cookie or a session."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"Token {obj.name}",
            "opts": self.opts,
            "row": obj,
            "token": obj.text,
        }
        response = TemplateResponse(request, "admin/notifications/apitoken/issued.html", context)
        add_never_cache_headers(response)
        return response
