"""Admin pages about mail: deliveries, webhook events, suppressed addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from config import words
from config.keyset import Keyset, KeysetChangeList
from config.payload import pretty
from config.templatetags.spillway import chip
from config.window import ReadOnlyAdmin, Segments, age_column
from notifications import recipients, suppression
from notifications.mail_console import LIFT, SUPPRESS
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.webhooks.providers import PROVIDERS
from outbox.console import is_uuid, may_see_payloads, operator_of

MOST_FOUND = 20


def shown(request: HttpRequest, address: str) -> str:
    """An address, to those who may read it."""
    return address if may_see_payloads(request) else recipients.masked(address)


# -- Deliveries --------------------------------------------------------------------------------------------
class StatusOfDelivery(Segments):
    title = "status"
    parameter_name = "status"
    field = "status"
    choices_in_words = [("all", "All"), *((status.value, str(status.label)) for status in Delivery.Status)]


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    place = 20
    levers = (SUPPRESS,)
    list_display = ["mail", "state", "provider", "accepted", "changed"]
    list_filter = [StatusOfDelivery]
    search_fields = ["pk"]
    search_help_text = (
        "Paste a message id, or the provider's id of a mail. Exact match, in the chosen status."
    )
    empty = ("No deliveries here", "A delivery appears when a provider has accepted a mail.")
    accepted = age_column("accepted_at", "Accepted")
    changed = age_column("status_at", "In this state since")

    @admin.display(description="Mail")
    def mail(self, row: Delivery) -> str:
        line = '<span class="sw-code">{}</span><span class="sw-second">to {}</span>'
        return format_html(line, row.message_id, recipients.masked(row.recipient))

    @admin.display(description="State")
    def state(self, row: Delivery) -> str:
        return chip(row.status)

    def find(self, key: str) -> Iterable[Delivery]:
        if is_uuid(key):
            return list(Delivery.objects.of_messages([key]))  # type: ignore[list-item]
        names = [*settings.CHANNELS, *PROVIDERS, settings.EMAIL_ESP]
        return list(Delivery.objects.filter(provider__in=names, provider_message_id=key)[:MOST_FOUND])

    def detail(self, request: HttpRequest, row: Delivery) -> dict[str, Any]:
        return {
            "title": f"Mail to {shown(request, row.recipient)}",
            "address": shown(request, row.recipient),
            "suppressed": Suppression.objects.of([row.recipient]).first(),
            "events": list(WebhookEvent.objects.filter(message_id=row.pk).order_by("-id")[:MOST_FOUND]),
            "message_url": reverse("admin:outbox_outboxmessage_change", args=[row.pk]),
            "order_url": reverse("admin:notifications_order_change", args=[row.order_id])
            if is_uuid(row.order_id)
            else "",
        }


# -- Webhook events ----------------------------------------------------------------------------------------
class VerdictOfEvent(Segments):
    title = "verdict"
    parameter_name = "verdict"
    field = "verdict"
    choices_in_words = [
        ("all", "All"), ("applied", "Applied"), ("no_news", "No news"), ("parked", "Waiting"),
        ("unknown_message", "Unknown message"), ("other_recipient", "Other recipient"), ("ignored", "Ignored"),
    ]  # fmt: skip


@admin.register(WebhookEvent)
class WebhookEventAdmin(ReadOnlyAdmin):
    place = 30
    list_display = ["event", "outcome", "provider", "occurred", "received"]
    list_filter = [VerdictOfEvent]
    search_fields = ["pk"]
    search_help_text = "Paste a message id or an event id. Exact match, with the chosen verdict."
    empty = ("No events here", "Providers that are told our address report here what became of each mail.")
    occurred = age_column("occurred_at", "Happened")
    received = age_column("received_at", "Received")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("body", "headers")

    @admin.display(description="Event")
    def event(self, row: WebhookEvent) -> str:
        line = '{}<span class="sw-second sw-code">{}</span>'
        return format_html(
            line, row.get_kind_display().capitalize(), row.message_id or row.provider_message_id
        )

    @admin.display(description="Verdict")
    def outcome(self, row: WebhookEvent) -> str:
        return verdict_chip(row)

    def find(self, key: str) -> Iterable[WebhookEvent]:
        if not is_uuid(key):
            return ()
        rows = WebhookEvent.objects.defer("body", "headers")
        by_message = list(rows.filter(message_id=key)[:MOST_FOUND])
        return [*rows.filter(pk=key), *by_message]

    def detail(self, request: HttpRequest, row: WebhookEvent) -> dict[str, Any]:
        may_see = may_see_payloads(request)
        return {
            "title": f"{row.get_kind_display().capitalize()}, says {row.provider}",
            "verdict": verdict_chip(row),
            "payload": pretty(row.body) if may_see else "",
            "size": len(row.body.encode()),
            "may_see": may_see,
            "delivery": Delivery.objects.of_messages([row.message_id]).first() if row.message_id else None,
            "facts": [
                ("Provider's id of the event", row.dedup_id), ("Provider's id of the mail", row.provider_message_id),
                ("Recipient", shown(request, row.recipient) if row.recipient else "not said"),
                ("Detail", (row.detail or words.UNKNOWN) if may_see else "not shown"),
            ],
        }  # fmt: skip


def verdict_chip(row: WebhookEvent) -> str:
    # "Parked" is a dead letter elsewhere; here it only waits.
    return chip("waiting", "Waits for its message") if row.verdict == "parked" else chip(row.verdict)


# -- Suppressed addresses ----------------------------------------------------------------------------------
class NewSuppression(forms.ModelForm):
    class Meta:
        model = Suppression
        fields = ["address", "note"]
        labels = {"note": "Reason"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = True

    def clean_address(self) -> str:
        try:
            return recipients.check(self.cleaned_data["address"])
        except ValueError as error:
            raise forms.ValidationError(f"Not an address: {error}.") from error


@admin.register(Suppression)
class SuppressionAdmin(ReadOnlyAdmin):
    place = 40
    levers = (LIFT,)
    form = NewSuppression
    list_display = ["to", "because", "since_when", "note"]
    search_fields = ["pk"]
    search_help_text = "Paste an address. Capitals do not matter."
    empty = ("Nobody is suppressed", "Addresses that bounced for good or complained are listed here.")
    since_when = age_column("since", "Since")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        return Keyset("since", ties_opposed=True)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    @admin.display(description="Address")
    def to(self, row: Suppression) -> str:
        return str(row)

    @admin.display(description="Because")
    def because(self, row: Suppression) -> str:
        return row.get_reason_display().capitalize()

    def find(self, key: str) -> Iterable[Suppression]:
        return list(Suppression.objects.of([key])) if "@" in key else ()

    def detail(self, request: HttpRequest, row: Suppression) -> dict[str, Any]:
        facts = [
            ("Address", shown(request, row.address)), ("Because", self.because(row)),
            ("Since", f"{row.since:%Y-%m-%d %H:%M:%S} UTC"), ("Note", row.note or words.UNKNOWN),
        ]  # fmt: skip
        return {"facts": facts}

    def save_model(self, request: HttpRequest, obj: Suppression, form: Any, change: bool) -> None:
        suppression.add([obj.address], operator_of(request.user), obj.note)
        obj.__dict__.update(Suppression.objects.of([obj.address]).get().__dict__)

    def response_add(
        self, request: HttpRequest, obj: Suppression, post_url_continue: str | None = None
    ) -> HttpResponse:
        messages.success(request, f"{obj} is suppressed.")
        return HttpResponseRedirect(reverse("admin:notifications_suppression_change", args=[obj.pk]))

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        """The trail of operator actions has it, with its reason and without the address."""
