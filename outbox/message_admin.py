"""Admin pages of the outbox: messages with their way and their tries, and the channels they leave by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.clickjacking import xframe_options_sameorigin

from config import words
from config.keyset import Keyset, KeysetChangeList
from config.payload import pretty
from config.templatetags.spillway import chip, moment
from config.window import ReadOnlyAdmin, Segments, age_column
from outbox.console import is_uuid, may_see_payloads
from outbox.message_console import (
    CANCEL,
    GIVE_UP,
    IT_WAS_SENT,
    PAUSE,
    RESUME,
    SEND_AGAIN,
    TRY_NOW,
    state_of_channel,
    state_of_message,
)
from outbox.models import ChannelState, DeadLetter, DeliveryAttempt, IdempotencyKey, OutboxMessage
from outbox.way import way_of

MOST_FOUND = 20
MOST_COUNTED = 10_000
# A mail is somebody else's HTML: no script, no request, no link that leaves, in a frame of its own.
MAIL_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"


# -- Messages ----------------------------------------------------------------------------------------------
class StateOfMessage(Segments):
    title = "state"
    parameter_name = "state"
    field = "state"
    choices_in_words = [
        ("all", "All"), ("pending", "Pending"), ("processing", "Processing"), ("uncertain", "Uncertain"),
        ("sent", "Sent"), ("dead_lettered", "Dead letter"), ("expired", "Expired"), ("cancelled", "Cancelled"),
    ]  # fmt: skip


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnlyAdmin):
    place = 40
    levers = (TRY_NOW, IT_WAS_SENT, SEND_AGAIN, CANCEL, GIVE_UP)
    list_display = ["what", "state_chip", "channel", "tries", "next_try", "written"]
    list_filter = [StateOfMessage]
    search_fields = ["pk"]
    search_help_text = "Paste a message id; or an aggregate such as order:… for what it still has to send."
    empty = ("Nothing here", "A message appears with the change it tells of, in the same transaction.")
    written = age_column("created_at", "Written")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """What waits is read in the order in which it will be tried."""
        if changelist.params.get("state") == "pending":
            return Keyset("available_at", descending=False, back="Sooner", on="Later")
        return self.keyset

    @admin.display(description="Message")
    def what(self, row: OutboxMessage) -> str:
        return format_html('{}<span class="sw-second sw-code">{}</span>', row.event_type, row.aggregate)

    @admin.display(description="State")
    def state_chip(self, row: OutboxMessage) -> str:
        return chip(state_of_message(row))

    @admin.display(description="Tries")
    def tries(self, row: OutboxMessage) -> str:
        return format_html('<span class="sw-number">{}</span>', row.attempts)

    @admin.display(description="Next try")
    def next_try(self, row: OutboxMessage) -> str:
        if row.state != "pending":
            return words.UNKNOWN
        now = timezone.now()
        return moment(
            row.available_at, "now" if row.available_at <= now else words.ago(row.available_at, now)
        )

    def find(self, key: str) -> Iterable[OutboxMessage]:
        rows = OutboxMessage.objects.defer("payload")
        if is_uuid(key):
            return list(rows.filter(pk=key))
        return list(rows.unfinished().filter(aggregate=key)[:MOST_FOUND])

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.body_view)
        return [path("<uuid:pk>/body/", view, name="outbox_outboxmessage_body"), *super().get_urls()]

    def body_view(self, request: HttpRequest, pk: Any) -> HttpResponse:
        """The HTML of a mail, for the sandboxed frame on its page."""
        if not (self.has_view_permission(request) and may_see_payloads(request)):
            raise PermissionDenied
        row = OutboxMessage.objects.filter(pk=pk).first()
        html = mail_of(row).get("html") if row else None
        if not isinstance(html, str):
            raise Http404
        return _framed(html)

    def detail(self, request: HttpRequest, row: OutboxMessage) -> dict[str, Any]:
        now, may_see = timezone.now(), may_see_payloads(request)
        attempts = list(DeliveryAttempt.objects.filter(message_id=row.pk).order_by("-id")[:MOST_FOUND])
        mail = mail_of(row) if may_see else {}
        key = IdempotencyKey.objects.filter(scope="publish", message_id=row.pk, created_at=row.created_at)
        return {
            "title": f"{row.event_type} for {row.aggregate}",
            "state": state_of_message(row),
            "attempts": attempts,
            "way": way_of(row, attempts, now),
            "next_try": row.available_at if row.state == "pending" else None,
            "mail": mail if "subject" in mail else None,
            "body_url": reverse("admin:outbox_outboxmessage_body", args=[row.pk]) if "html" in mail else "",
            "payload": pretty(row.payload) if may_see else "",
            "size": len(row.payload.encode()),
            "may_see": may_see,
            "key": key.values_list("key", flat=True).first(),
            "channel": ChannelState.objects.filter(pk=row.channel).first(),
            "letters": list(
                DeadLetter.objects.filter(business_key=row.aggregate).newest_first()[:MOST_FOUND]
            ),
        }


@xframe_options_sameorigin
def _framed(html: str) -> HttpResponse:
    return HttpResponse(
        html, headers={"Content-Security-Policy": MAIL_POLICY, "Referrer-Policy": "no-referrer"}
    )


def mail_of(row: OutboxMessage) -> dict[str, Any]:
    """The payload of a mail; {} for what is none."""
    try:
        payload = msgspec.json.decode(row.payload)
    except msgspec.DecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}


# -- Channels ----------------------------------------------------------------------------------------------
@admin.register(ChannelState)
class ChannelStateAdmin(ReadOnlyAdmin):
    place = 45
    levers = (RESUME, PAUSE)
    keyset = Keyset("name", descending=False)
    list_display = ["name", "state_chip", "waiting", "since", "why"]
    empty = (
        "No channel has sent anything yet",
        "Each handler of HANDLERS has a row here from its first round on.",
    )

    @admin.display(description="State")
    def state_chip(self, row: ChannelState) -> str:
        return chip(state_of_channel(row, timezone.now()))

    @admin.display(description="Waiting")
    def waiting(self, row: ChannelState) -> str:
        return format_html('<span class="sw-number">{}</span>', waiting_in(row))

    @admin.display(description="Since")
    def since(self, row: ChannelState) -> str:
        when = row.paused_at if row.paused else row.opened_at
        return moment(when, words.ago(when, timezone.now()))

    @admin.display(description="Why")
    def why(self, row: ChannelState) -> str:
        return row.pause_reason if row.paused else row.last_error if row.failures else ""

    def find(self, key: str) -> Iterable[ChannelState]:
        return list(ChannelState.objects.filter(pk=key))

    def detail(self, request: HttpRequest, row: ChannelState) -> dict[str, Any]:
        now = timezone.now()
        errors = (
            DeliveryAttempt.objects.filter(channel=row.pk).exclude(outcome__in=["sent", ""]).order_by("-id")
        )
        oldest = OutboxMessage.objects.due(row.pk, now).values_list("available_at", flat=True).first()
        return {
            "title": f"Channel {row.name}",
            "state": state_of_channel(row, now),
            "waiting": waiting_in(row),
            "errors": list(errors[:MOST_FOUND]) if row.failures or row.paused else [],
            "facts": [
                ("Oldest due", words.ago(oldest, now) if oldest else "nothing is due"),
                ("Outages in a row", f"{row.failures:,}"),
                ("Next probe", words.ago(row.probe_at, now) if row.probe_at else words.UNKNOWN),
                ("Told to wait until", words.ago(row.wait_until, now) if row.wait_until else words.UNKNOWN),
                ("Newest by change capture", words.ago(row.cdc_seen_at, now)),
            ],
        }


def waiting_in(row: ChannelState) -> str:
    """Pending messages of a channel; counting stops somewhere."""
    found = OutboxMessage.objects.in_channel(row.pk).pending().order_by()[: MOST_COUNTED + 1]
    return words.bounded(found.count(), MOST_COUNTED)
