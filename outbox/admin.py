"""Admin pages of what every flow shares: failure groups, dead letters, watermarks, the operator's trail."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import models
from django.db.models import F
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from config import words
from config.keyset import Keyset
from config.payload import pretty
from config.templatetags.spillway import chip, moment, said
from config.window import ReadOnlyAdmin, Segments, age_column, number_column
from outbox.console import DISCARD, REQUEUE, RESOLVE, is_uuid, may_see_payloads
from outbox.models import DeadLetter, FailureGroup, OperatorAction, Watermark
from outbox.picture import BEHIND, UNSEEN, lag_of

POSITION = re.compile(r"(?P<topic>[\w.-]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})", re.ASCII)
MOST_FOUND = 20
NEWEST = 10
TABS = [("Groups", "admin:outbox_failuregroup_changelist"), ("Letters", "admin:outbox_deadletter_changelist")]


class StateOfLetter(Segments):
    title = "state"
    parameter_name = "state"
    field = "status"
    choices_in_words = [
        ("open", "Open"), ("requeued", "Requeued"), ("resolved", "Resolved"), ("discarded", "Discarded"),
        ("all", "All"),
    ]  # fmt: skip


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    place = 20
    tabs = TABS
    levers = (REQUEUE, RESOLVE, DISCARD)
    list_display = ["letter", "state", "cause", "source", "arrived"]
    list_filter = [StateOfLetter]
    search_fields = ["pk"]
    search_help_text = (
        "Paste an order id, batch id, letter id or topic/partition/offset. Exact match, in the chosen state."
    )
    empty = ("No letters here", "A letter appears when a message failed for good.")
    arrived = age_column("created_at", "Arrived")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        # A list never needs what can be large; a page reads it when it is shown.
        return super().get_queryset(request).defer("payload", "traceback", "headers")

    @admin.display(description="Letter")
    def letter(self, row: DeadLetter) -> str:
        return row.business_key or row.position

    @admin.display(description="State")
    def state(self, row: DeadLetter) -> str:
        return chip(row.status)

    @admin.display(description="Cause")
    def cause(self, row: DeadLetter) -> str:
        line = '{}<span class="sw-second"><code>{}</code> in {}</span>'
        return format_html(line, row.error[:200], row.error_class or row.reason, row.step)

    def find(self, key: str) -> Iterable[DeadLetter]:
        rows = DeadLetter.objects.newest_first().defer("payload", "traceback", "headers")
        place = POSITION.fullmatch(key)
        if place:
            return list(rows.filter(**place.groupdict())[:MOST_FOUND])
        found = list(rows.filter(business_key=key)[:MOST_FOUND])
        return found or (list(rows.filter(pk=key)) if is_uuid(key) else [])

    def detail(self, request: HttpRequest, row: DeadLetter) -> dict[str, Any]:
        group = FailureGroup.objects.filter(pk=row.group_id).first()
        text = pretty(row.payload) if may_see_payloads(request) else ""
        return {
            "title": f"{row.reason.replace('_', ' ').capitalize()}: {row.business_key or row.position}",
            "group": group,
            "payload": text,
            "size": len(row.payload) if row.payload is not None else None,
            "may_see": may_see_payloads(request),
            "key": bytes(row.key).decode("utf-8", "backslashreplace") if row.key else words.UNKNOWN,
            "again": group and timezone.now() - group.last_seen < BEHIND * 60,
        }


# -- Failure groups ----------------------------------------------------------------------------------------
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
        return format_html(
            '{}<span class="sw-second"><code>{}</code> in {}</span>', row.title, row.reason, row.step
        )

    def detail(self, request: HttpRequest, row: FailureGroup) -> dict[str, Any]:
        letters = (
            DeadLetter.objects.of_group(row.pk).open().newest_first().defer("payload", "traceback", "headers")
        )
        url = reverse("admin:outbox_deadletter_changelist")
        return {"letters": list(letters[:NEWEST]), "letters_url": f"{url}?group__id__exact={row.pk}"}


# -- Watermarks --------------------------------------------------------------------------------------------
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
    late = lag_of(row) and (row.caught_up_at is None or now - row.caught_up_at > BEHIND)
    return "behind" if late else "healthy"


@admin.register(Watermark)
class WatermarkAdmin(ReadOnlyAdmin):
    place = 60
    keyset = Keyset(descending=False, back="Back", on="On")
    list_display = ["position", "state", "group", "count_lag", "caught_up", "reported"]
    list_filter = [StateOfPosition]
    caught_up = age_column("caught_up_at", "Read to the end")
    reported = age_column("updated_at", "Last report")

    @admin.display(description="Partition")
    def position(self, row: Watermark) -> str:
        return f"{row.topic}/{row.partition}"

    @admin.display(description="State")
    def state(self, row: Watermark) -> str:
        state = state_of(row)
        return said(state) if state == "healthy" else chip(state)

    @admin.display(description="Records behind")
    def count_lag(self, row: Watermark) -> str:
        return format_html('<span class="sw-number">{}</span>', f"{lag_of(row):,}")

    def detail(self, request: HttpRequest, row: Watermark) -> dict[str, Any]:
        now = timezone.now()
        reported = moment(
            row.updated_at, f"{words.clock(row.updated_at, now)}, {words.ago(row.updated_at, now)}"
        )
        return {
            "title": f"{row.topic}, partition {row.partition}",
            "state": state_of(row),
            "lag": lag_of(row),
            "facts": [
                ("Consumer group", row.group), ("Topic id", row.topic_id or words.UNKNOWN),
                ("Next offset", f"{row.next_offset:,}"), ("End of the log", f"{row.end_offset:,}"),
                ("Read to the end", words.ago(row.caught_up_at, now)), ("Last report", reported),
            ],
        }  # fmt: skip


# -- The trail ---------------------------------------------------------------------------------------------
@admin.register(OperatorAction)
class OperatorActionAdmin(ReadOnlyAdmin):
    place = 70
    keyset = Keyset("created_at", ties_opposed=True)
    list_display = ["did", "when", "actor_name", "reason", "result", "count_rows"]
    empty = (
        "No levers were pulled yet",
        "Whatever somebody changes here or by a command is written down with its reason.",
    )
    when = age_column("created_at", "When")
    count_rows = number_column("rows", "Rows")

    @admin.display(description="Did")
    def did(self, row: OperatorAction) -> str:
        return f"{row.verb.capitalize()}: {row.subject}"

    def detail(self, request: HttpRequest, row: OperatorAction) -> dict[str, Any]:
        when = words.clock(row.created_at, timezone.now())
        facts = [
            ("Who", row.actor_name), ("When", f"{when} UTC"), ("Reason", row.reason), ("Result", row.result),
            ("Rows", f"{row.rows:,}"), *((name, _joined(value)) for name, value in row.detail.items()),
        ]  # fmt: skip
        return {"title": f"{row.verb.capitalize()}: {row.subject}", "facts": facts}


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


from outbox import message_admin, replay_admin  # noqa: E402, F401 (their pages)
