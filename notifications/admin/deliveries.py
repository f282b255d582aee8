"""Admin page of deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db import models
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from config.admin.html import chip
from config.admin.levers import Lever, Operator
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column
from config.uuid7 import is_uuid
from notifications.mail import recipients, suppression
from notifications.mail.deliveries import Delivery
from notifications.mail.suppression import Suppression
from notifications.webhooks.inbox import WebhookEvent
from notifications.webhooks.providers import PROVIDERS
from outbox.trail.reveal import Revealing, Sight


def _suppress(keys: list[Any], operator: Operator, reason: str) -> int:
    people = Delivery.objects.of_messages(keys).values_list("recipient", flat=True)
    return suppression.add(list(people), operator, reason)


def _not_suppressed(rows: models.QuerySet) -> models.QuerySet:
    """Compared by the address as stored; `add` compares again, by the hash that ignores case."""
    return rows.exclude(Exists(Suppression.objects.filter(address=OuterRef("recipient"))))


SUPPRESS = Lever(
    name="suppress", verb="Suppress the recipient", past="Suppressed", icon="ban",
    right="suppress_recipient", keep="Go on writing",
    nouns=("recipient", "recipients"),
    promise="This address gets no mail any more, whatever happens to its orders.",
    detail="Mails that wait for it become dead letters when their turn comes; they can be requeued after it is lifted.",
    question="Suppress",
    act=_suppress, ready=_not_suppressed, why_not=lambda row: "The address is suppressed already.",
    harm=True, least=10,
)  # fmt: skip
MOST_FOUND = 20


def address_seen(sight: Sight, address: str) -> str:
    """An address, to those to whom its row is revealed."""
    return address if sight.shown else recipients.masked(address)


class StatusOfDelivery(Segments):
    title = "status"
    parameter_name = "status"
    field = "status"
    choices_in_words = [("all", "All"), *((status.value, str(status.label)) for status in Delivery.Status)]


@admin.register(Delivery)
class DeliveryAdmin(Revealing, ReadOnlyAdmin):
    place = 20
    levers = (SUPPRESS,)
    list_display = ["mail", "state", "provider", "accepted", "changed"]
    list_filter = [StatusOfDelivery]
    search_fields = ["pk"]
    search_help_text = "Paste a message id, or the provider's id of a mail. Exact match, in the chosen status."
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
        sight = self.sight(request, row)
        address = address_seen(sight, row.recipient)
        return {
            "title": f"Mail to {address}",
            "address": address,
            "sight": sight,
            "words": sight.text(row.detail),
            "suppressed": Suppression.objects.of([row.recipient]).first(),
            "events": list(WebhookEvent.objects.filter(message_id=row.pk).order_by("-id")[:MOST_FOUND]),
            "message_url": reverse("admin:outbox_outboxmessage_change", args=[row.pk]),
            "order_url": reverse("admin:notifications_order_change", args=[row.order_id])
            if is_uuid(row.order_id)
            else "",
        }
