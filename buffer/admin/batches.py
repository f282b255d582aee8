"""Admin page of batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils.html import format_html

from buffer.admin import explain
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.streams import streams
from config.admin import humanize
from config.admin.html import chip
from config.admin.keyset import Keyset, KeysetChangeList
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column, number_column
from config.flows import mask_of
from config.kafka import topic_name
from config.uuid7 import is_uuid
from outbox.letters.models import DeadLetter
from outbox.trail.reveal import Revealing

MOST_FOUND = 20
RECENT_BATCHES = 10
MOST_EVENTS = 500


class StateOfBatch(Segments):
    title = "state"
    parameter_name = "state"
    field = "status"
    words = {
        "claimed": "Waiting to publish",
        "sent": "Sent",
        "parked": "Dead letter",
        "discarded": "Discarded",
    }
    choices_in_words = [("all", "All"), *words.items()]


@admin.register(Batch)
class BatchAdmin(Revealing, ReadOnlyAdmin):
    place = 10
    keyset = Keyset("claimed_at", ties_opposed=True)
    list_display = ["batch", "state", "count_events", "rule", "cut", "went_to"]
    list_filter = [StateOfBatch]
    links = ["stream", "location_id", "batch_id"]
    search_fields = ["pk"]
    search_help_text = "Paste a batch id. Exact match, in every state."
    count_events = number_column("event_count", "Orders")
    cut = age_column("claimed_at", "Cut")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload", "headers", "event_ids")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """Each by its own index: (stream, location, sequence), (status, claimed_at), (-claimed_at)."""
        if "location_id" in changelist.params:
            return Keyset("sequence")
        return self.keyset if changelist.params.get("state", "all") == "all" else Keyset("claimed_at")

    @admin.display(description="Batch")
    def batch(self, row: Batch) -> str:
        line = '{}, no. {}<span class="sw-second sw-code">{}</span>'
        return format_html(line, row.location_id, f"{row.sequence:,}", row.batch_id)

    @admin.display(description="State")
    def state(self, row: Batch) -> str:
        return chip("publishing" if row.status == "claimed" else row.status)

    @admin.display(description="Rule")
    def rule(self, row: Batch) -> str:
        return row.reason.capitalize()

    @admin.display(description="Went to")
    def went_to(self, row: Batch) -> str:
        return went_to(row) or humanize.UNKNOWN

    def find(self, key: str) -> Iterable[Batch]:
        return list(Batch.objects.filter(pk=key).defer("payload", "headers", "event_ids")) if is_uuid(key) else []

    def detail(self, request: HttpRequest, row: Batch) -> dict[str, Any]:
        message, sight = msgspec.json.decode(row.payload), self.sight(request, row)
        rows = BufferedEvent.objects.in_months(row.months).filter(pk__in=row.event_ids[:MOST_EVENTS])
        buckets = Bucket.objects.filter(stream=row.stream, location_id=row.location_id)
        return {
            "title": f"Batch {row.sequence:,} for {row.location_id}",
            "state": "publishing" if row.status == "claimed" else row.status,
            "items": message["items"],
            "order_ids": message["order_ids"] if not row.event_ids else [],
            "events": list(rows.defer("payload").oldest_first()),
            "payload": sight.payload(row.payload, *mask_of(row.stream)),
            "size": len(row.payload.encode()),
            "sight": sight,
            "error": sight.error(row.error),
            "headers": [(name, sight.text(value)) for name, value in row.headers.items()],
            "went_to": went_to(row),
            "bucket": buckets.first(),
            "letters": list(DeadLetter.objects.filter(business_key=str(row.pk)).newest_first()[:MOST_FOUND]),
            "rule": explain.rule_of(row),
        }


def went_to(row: Batch) -> str:
    """`topic/partition/offset`, empty until the broker acknowledged it."""
    if row.output_offset is None:
        return ""
    stream = streams().get(row.stream)
    return f"{topic_name(stream.output) if stream else row.stream}/{row.output_partition}/{row.output_offset}"
