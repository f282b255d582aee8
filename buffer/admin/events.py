"""Admin page of orders in the buffer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils.html import format_html

from buffer.admin import explain
from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.events.queries import EventQuerySet
from buffer.flush import set_aside
from buffer.streams import streams
from config.admin import humanize
from config.admin.html import chip
from config.admin.levers import Lever
from config.admin.read_only import ReadOnlyAdmin, age_column
from config.flows import mask_of
from outbox.letters.models import DeadLetter
from outbox.trail.reveal import Revealing

WITHDRAW = Lever(
    name="withdraw", verb="Withdraw", past="Withdrew", icon="ban",
    right="withdraw_bufferedevent", keep="Leave it in",
    nouns=("order", "orders"),
    promise="It will not be in the next batch.",
    detail="A withdrawn order stays in search and is marked, not deleted. A batch that is cut in the meantime wins.",
    act=levers.withdraw, ready=EventQuerySet.pending,
    why_not=explain.why_not_withdraw, harm=True, least=10,
)  # fmt: skip
MOST_FOUND = 20


@admin.register(BufferedEvent)
class BufferedEventAdmin(Revealing, ReadOnlyAdmin):
    place = 30
    levers = (WITHDRAW,)
    list_display = ["order_id", "state", "location_id", "version", "position", "arrived"]
    links = ["stream", "location_id", "status"]
    search_fields = ["pk"]
    search_help_text = "Paste an order id, capitals included. Exact match, in all months that are kept."
    arrived = age_column("created_at", "Arrived")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload")

    @admin.display(description="State")
    def state(self, row: BufferedEvent) -> str:
        return chip(row.state)

    @admin.display(description="Version")
    def version(self, row: BufferedEvent) -> str:
        return "first" if not row.revision else f"replaced {humanize.plural(row.revision, 'time', 'times')}"

    @admin.display(description="Source")
    def position(self, row: BufferedEvent) -> str:
        return format_html('<span class="sw-code">{}</span>', explain.source_of(row))

    def find(self, key: str) -> Iterable[BufferedEvent]:
        # The whole unique key but its last column: without months and streams this would be a scan.
        rows = BufferedEvent.objects.in_months(explain.months_kept()).filter(stream__in=list(streams()), order_id=key)
        return list(rows.defer("payload")[:MOST_FOUND])

    def detail(self, request: HttpRequest, row: BufferedEvent) -> dict[str, Any]:
        batches = Batch.objects.defer("payload", "headers", "event_ids")
        batch, sight = batches.filter(pk=row.batch_id).first(), self.sight(request, row)
        letters = list(DeadLetter.objects.filter(business_key=row.order_id).newest_first()[:MOST_FOUND])
        return {
            "title": f"Order {row.order_id}",
            "batch": batch,
            "source": explain.source_of(row),
            "bucket": Bucket.objects.filter(stream=row.stream, location_id=row.location_id).first(),
            "letters": letters,
            "set_aside": next((letter for letter in letters if _is_set_aside(row, letter)), None),
            "payload": sight.payload(row.payload, *mask_of(row.stream)),
            "size": len(row.payload.encode()),
            "sight": sight,
            "retention_months": settings.BUFFER_RETENTION_MONTHS,
        }


def _is_set_aside(row: BufferedEvent, letter: DeadLetter) -> bool:
    """Whether this letter, and not a person, took the order out."""
    place = (letter.topic_id, letter.partition, letter.offset)
    here = place == (row.topic_id, row.source_partition, row.source_offset)
    return (
        row.state == "withdrawn" and letter.step == set_aside.STEP and here and letter.status in ("open", "discarded")
    )
