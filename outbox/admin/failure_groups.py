"""Admin page of failure groups."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from config.admin.keyset import Keyset
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column, number_column
from outbox.letters.models import DeadLetter, FailureGroup

NEWEST = 10
TABS = [("Groups", "admin:outbox_failuregroup_changelist"), ("Letters", "admin:outbox_deadletter_changelist")]


class WorkOfGroup(Segments):
    title = "show"
    parameter_name = "show"
    choices_in_words = [("work", "Needs work"), ("all", "All")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        return queryset.needing_work() if self.chosen() == "work" else queryset  # type: ignore[attr-defined]


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin):
    place = 10
    tabs = TABS
    keyset = Keyset("last_seen")
    list_display = ["cause", "source", "count_open", "count_total", "first", "last"]
    list_filter = [WorkOfGroup]
    empty = ("No dead letters need work", "A letter appears here when a message failed for good.")
    count_open = number_column("open_count", "Open")
    count_total = number_column("total_count", "Ever")
    first = age_column("first_seen", "First seen")
    last = age_column("last_seen", "Last seen")

    @admin.display(description="Cause")
    def cause(self, row: FailureGroup) -> str:
        line = '{}<span class="sw-second"><code>{}</code>, step “{}”</span>'
        return format_html(line, row, row.reason, row.step)

    def detail(self, request: HttpRequest, row: FailureGroup) -> dict[str, Any]:
        letters = DeadLetter.objects.of_group(row.pk).open().newest_first().defer("payload", "traceback", "headers")
        url = reverse("admin:outbox_deadletter_changelist")
        return {"title": str(row), "letters": list(letters[:NEWEST]), "letters_url": f"{url}?group__id__exact={row.pk}"}
