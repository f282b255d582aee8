"""Admin page of webhook events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils.html import format_html

from config.admin import humanize
from config.admin.html import chip
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column
from config.uuid7 import is_uuid
from notifications.admin.deliveries import address_seen
from notifications.mail.deliveries import Delivery
from notifications.webhooks.inbox import WebhookEvent
from outbox.trail.reveal import Revealing

MOST_FOUND = 20


class VerdictOfEvent(Segments):
    title = "verdict"
    parameter_name = "verdict"
    field = "verdict"
    choices_in_words = [
        ("all", "All"),
        ("applied", "Applied"),
        ("no_news", "No news"),
        ("parked", "Waiting"),
        ("unknown_message", "Unknown message"),
        ("other_recipient", "Other recipient"),
        ("ignored", "Ignored"),
    ]


@admin.register(WebhookEvent)
class WebhookEventAdmin(Revealing, ReadOnlyAdmin):
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
        return format_html(line, row.get_kind_display().capitalize(), row.message_id or row.provider_message_id)

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
        sight = self.sight(request, row)
        return {
            "title": f"{row.get_kind_display().capitalize()}, says {row.provider}",
            "verdict": verdict_chip(row),
            "payload": sight.payload(row.body),
            "size": len(row.body.encode()),
            "sight": sight,
            "headers": [(name, sight.text(str(value))) for name, value in (row.headers or {}).items()],
            "delivery": Delivery.objects.of_messages([row.message_id]).first() if row.message_id else None,
            "facts": [
                ("Provider's id of the event", row.dedup_id),
                ("Provider's id of the mail", row.provider_message_id),
                ("Recipient", address_seen(sight, row.recipient) if row.recipient else "not said"),
                ("Detail", sight.text(row.detail) or humanize.UNKNOWN),
            ],
        }


def verdict_chip(row: WebhookEvent) -> str:
    # "Parked" is a dead letter elsewhere; here it only waits.
    return chip("waiting", "Waits for its message") if row.verdict == "parked" else chip(row.verdict)
