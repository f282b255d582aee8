"""Admin list of the letters of one replay batch."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from config.admin import humanize
from config.admin.html import chip
from config.admin.keyset import Keyset
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column
from config.admin.states import in_words
from outbox.replay.batches.models import ReplayItem

CHIPS = {"eligible": "pending", "verified": "resolved", "left": "withdrawn", "refused": "rejected"}


class StateOfItem(Segments):
    """Always one state: that is what the index begins with."""

    title = "state"
    parameter_name = "state"
    field = "state"
    choices_in_words = in_words("failed_again refused skipped eligible requeued verified left")


@admin.register(ReplayItem)
class ReplayItemAdmin(ReadOnlyAdmin):
    keyset = Keyset("letter")
    links = ["batch__id__exact"]
    list_filter = [StateOfItem]
    list_display = ["of_letter", "result", "said", "changed"]
    list_display_links = None
    changed = age_column("changed_at", "When")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False  # only a batch leads here

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        rows = super().get_queryset(request)
        return rows if request.GET.get("batch__id__exact") else rows.none()

    def narrowed_to(self, lookup: str, value: Any) -> str:
        return f"letters of replay batch {value}"

    def way_back(self, request: HttpRequest) -> tuple[str, str]:
        """There is no list of all: it is a part of its batch."""
        batch = request.GET.get("batch__id__exact", "")
        return "Back to the batch", reverse(
            "admin:outbox_replaybatch_change", args=[batch]
        ) if batch.isdecimal() else "?"

    @admin.display(description="Letter")
    def of_letter(self, row: ReplayItem) -> str:
        url = reverse("admin:outbox_deadletter_change", args=[row.letter])
        return format_html('<a href="{}">{}</a>', url, row)

    @admin.display(description="Result")
    def result(self, row: ReplayItem) -> str:
        return chip(CHIPS.get(row.state, row.state), row.get_state_display().capitalize())

    @admin.display(description="Why")
    def said(self, row: ReplayItem) -> str:
        return humanize.quoted(row.note)
