"""Admin page of buckets, and the levers on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from buffer.admin import explain
from buffer.admin.batches import RECENT_BATCHES
from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.events.queries import BucketQuerySet
from buffer.streams import streams
from config.admin import humanize
from config.admin.html import chip, moment
from config.admin.keyset import Keyset, KeysetChangeList
from config.admin.levers import Lever
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column, number_column

BUCKETS: dict[str, Any] = {"nouns": ("warehouse", "warehouses")}
FLUSH = Lever(
    name="flush", verb="Flush now", past="Asked for a batch of", icon="send",
    right="flush_bucket", keep="Not now",
    promise="Everything that waits there leaves with the next round of the flusher, seconds from now.",
    detail="An order that arrives later goes into the next batch; the warehouse gets one message more.",
    question="Flush", act=levers.flush_now,
    ready=BucketQuerySet.flushable,
    why_not=explain.why_not_flush, **BUCKETS,
)  # fmt: skip
HOLD = Lever(
    name="hold", verb="Hold", past="Held", icon="pause", right="hold_bucket", keep="Let it run",
    promise="Nothing leaves until somebody releases it.",
    detail="Orders go on arriving and wait. A batch that is already cut is still published.",
    act=levers.hold, ready=BucketQuerySet.running,
    why_not=lambda row: f"{row.location_id} is held already.", **BUCKETS,
)  # fmt: skip
RELEASE = Lever(
    name="release", verb="Release", past="Released", icon="play", right="hold_bucket", keep="Keep holding",
    promise="What waits there is judged at once.",
    detail="Orders that waited longer than the cap leave with the next round of the flusher.",
    act=levers.release, ready=BucketQuerySet.held,
    why_not=lambda row: f"{row.location_id} is not held.", **BUCKETS,
)  # fmt: skip
MOST_FOUND = 20
OPEN_EVENTS = 50


class StateOfBucket(Segments):
    title = "show"
    parameter_name = "state"
    choices_in_words = [("waiting", "Waiting"), ("held", "Held"), ("all", "All")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if self.chosen() == "waiting":
            return queryset.filter(due_at__isnull=False)
        return queryset.filter(held=True) if self.chosen() == "held" else queryset


@admin.register(Bucket)
class BucketAdmin(ReadOnlyAdmin):
    place = 20
    levers = (FLUSH, HOLD, RELEASE)
    list_display = ["location_id", "state", "count_open", "oldest", "newest", "next_look"]
    list_filter = [StateOfBucket]
    search_fields = ["pk"]
    search_help_text = "Paste a location id, capitals included. Exact match."
    empty = (
        "Nothing waits",
        "A warehouse appears here with its first order, and leaves when its batch is cut.",
    )
    count_open = number_column("open_count", "Orders")
    oldest = age_column("first_arrival", "Oldest")
    newest = age_column("last_arrival", "Newest")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        waiting = changelist.params.get("state", "waiting") == "waiting"
        return Keyset("due_at", descending=False, back="Sooner", on="Later") if waiting else Keyset()

    @admin.display(description="State")
    def state(self, row: Bucket) -> str:
        return chip(explain.state_of(row, timezone.now()))

    @admin.display(description="Next look")
    def next_look(self, row: Bucket) -> str:
        now = timezone.now()
        if row.due_at is None or row.due_at > now:
            return moment(row.due_at, humanize.ago(row.due_at, now))
        return moment(row.due_at, "now")

    def find(self, key: str) -> Iterable[Bucket]:
        return list(Bucket.objects.filter(stream__in=list(streams()), location_id=key)[:MOST_FOUND])

    def detail(self, request: HttpRequest, row: Bucket) -> dict[str, Any]:
        now = timezone.now()
        batches = Batch.objects.filter(stream=row.stream, location_id=row.location_id).order_by("-sequence")
        events = BufferedEvent.objects.pending().at(row.stream, [row.location_id]).oldest_first()
        query = urlencode({"stream": row.stream, "location_id": row.location_id})
        return {
            "state": explain.state_of(row, now),
            "why": explain.why(row, now),
            "batches": list(batches.defer("payload", "headers", "event_ids")[:RECENT_BATCHES]),
            "batches_url": f"{reverse('admin:buffer_batch_changelist')}?{query}",
            "events": list(events.defer("payload")[:OPEN_EVENTS]),
            "events_url": f"{reverse('admin:buffer_bufferedevent_changelist')}?{query}&status=pending",
            "stream": streams().get(row.stream),
        }
