"""Admin page of positions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib import admin
from django.db import models
from django.db.models import F
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html

from config.admin import humanize
from config.admin.filters import Segments
from config.admin.html import chip, clock_and_age, said
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column
from outbox.bookkeeping.models import UNSEEN, Watermark
from outbox.bookkeeping.progress import BEHIND, lag_of

PARTITION = re.compile(r"(?P<topic>[\w.-]+)/(?P<partition>\d{1,9})", re.ASCII)


class StateOfPosition(Segments):
    title = "state"
    parameter_name = "state"
    choices_in_words = [("all", "All"), ("stopped", "Stopped"), ("behind", "Behind")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if self.chosen() == "stopped":
            return queryset.exclude(alarm="")
        return queryset.filter(end_offset__gt=F("next_offset")) if self.chosen() == "behind" else queryset


def state_of(row: Watermark) -> str:
    """One word for a partition, by what it last reported."""
    now = timezone.now()
    if row.alarm:
        return "stopped"
    if now - row.updated_at > UNSEEN:
        return "unseen"
    late = lag_of(row, now) and (row.caught_up_at is None or now - row.caught_up_at > BEHIND)
    return "behind" if late else "healthy"


@admin.register(Watermark)
class WatermarkAdmin(ReadOnlyAdmin[Watermark]):
    place = 60
    keyset = Keyset(descending=False, back="Back", on="On")
    list_display = ["position", "state", "group", "count_lag", "caught_up", "reported"]
    list_filter = [StateOfPosition]
    links = ["group"]
    caught_up = age_column("caught_up_at", "Read to the end")
    reported = age_column("updated_at", "Last report")

    def find(self, key: str) -> Iterable[Watermark]:
        place = PARTITION.fullmatch(key)
        return list(Watermark.objects.filter(**place.groupdict())) if place else ()

    def words(self, row: Watermark) -> str:
        return f"{row.topic}/{row.partition} of {row.group}, next offset {row.next_offset:,}"

    @admin.display(description="Partition")
    def position(self, row: Watermark) -> str:
        return f"{row.topic}/{row.partition}"

    @admin.display(description="State")
    def state(self, row: Watermark) -> str:
        state = state_of(row)
        return said(state) if state == "healthy" else chip(state)

    @admin.display(description="Records behind")
    def count_lag(self, row: Watermark) -> str:
        behind = lag_of(row, timezone.now())
        return format_html('<span class="sw-number">{}</span>', humanize.UNKNOWN if behind is None else f"{behind:,}")

    def detail(self, request: HttpRequest, row: Watermark) -> dict[str, object]:
        now = timezone.now()
        offsets = [("Consumer group", row.group), ("Topic id", row.topic_id or humanize.UNKNOWN)]
        offsets += [("Next offset", f"{row.next_offset:,}"), ("End of the log", f"{row.end_offset:,}")]
        return {
            "title": f"{row.topic}, partition {row.partition}",
            "state": state_of(row),
            "lag": lag_of(row, now),
            "facts": [
                *offsets,
                ("Read to the end", humanize.ago(row.caught_up_at, now)),
                ("Last report", clock_and_age(row.updated_at, now)),
            ],
        }
