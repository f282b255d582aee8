"""Admin pages of replays: what was asked for, how far it is, and the form that asks."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from config.admin import humanize
from config.admin.html import chip, clock_and_age
from config.admin.levers import operator_of
from config.admin.read_only import ReadOnlyAdmin, age_column, number_column
from config.database.clock import database_now
from outbox.admin.replay_form import APPLY, CANCEL, Form, bar, headline, left
from outbox.replay.models import TopicReplay
from outbox.replay.run import replayable

REFRESH_SECONDS = 2


@admin.register(TopicReplay)
class TopicReplayAdmin(ReadOnlyAdmin):
    place = 65
    levers = (APPLY, CANCEL)
    list_display = ["timeframe", "state", "does", "count_read", "count_applied", "who", "asked"]
    empty = (
        "Nothing was replayed yet",
        "A replay reads a past timeframe of a topic again and applies what is missing.",
    )
    count_read = number_column("read", "Read")
    count_applied = number_column("applied", "Missing")
    asked = age_column("created_at", "Asked for")

    @admin.display(description="Timeframe")
    def timeframe(self, row: TopicReplay) -> str:
        return format_html('{}<span class="sw-second">{} to {}</span>', row.topic, *_ends(row))

    @admin.display(description="State")
    def state(self, row: TopicReplay) -> str:
        return chip(row.state, f"Running, {row.percent:.0f} %" if row.state == "running" else "")

    @admin.display(description="Does")
    def does(self, row: TopicReplay) -> str:
        return "Counts only" if row.dry_run else "Applies"

    @admin.display(description="By")
    def who(self, row: TopicReplay) -> str:
        return row.requested_by

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("outbox.replay_topic"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask for a replay: counted first, unless somebody wants it at once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = Form.empty(request.GET.dict(), database_now())
        if request.method == "POST":
            form = Form.of(request.POST.dict())
            replay = form.request(operator_of(request.user), dry_run="at_once" not in request.POST)
            if replay:
                return HttpResponseRedirect(reverse("admin:outbox_topicreplay_change", args=[replay.pk]))
        page = {**self.admin_site.each_context(request), "title": "Replay a topic", "opts": self.opts}
        context = {**page, "form": form, "topics": sorted(replayable()), "now": database_now()}
        return TemplateResponse(request, "admin/outbox/topicreplay/ask.html", context)

    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """`?part=1` answers with what the refresh script lays over the page."""
        response = super().change_view(request, *args, **kwargs)
        if request.GET.get("part") and isinstance(response, TemplateResponse):
            response.template_name = "admin/outbox/topicreplay/part.html"
        return response

    def detail(self, request: HttpRequest, row: TopicReplay) -> dict[str, Any]:
        now = database_now()
        unfinished = row.state in ("pending", "running")
        since, until = _ends(row)
        facts = [("Topic", row.topic), ("From", f"{since} UTC"), ("To", f"{until} UTC, not included")]
        facts += [("Slack", humanize.length(row.slack_seconds)), ("Offsets to look at", f"{row.total:,}")]
        facts += [("Asked for by", row.requested_by), ("Started", clock_and_age(row.started_at, now))]
        return {
            "title": f"{row.topic}, {since} to {until}",
            "headline": headline(row),
            "left": left(row, now),
            "bar": bar(row),
            "remaining": round(100 - row.percent, 2),
            "unfinished": unfinished,
            "refresh_seconds": REFRESH_SECONDS,
            "facts": [*facts, ("Ended", clock_and_age(row.finished_at, now))],
        }


def _ends(row: TopicReplay) -> tuple[str, str]:
    return f"{row.since:%Y-%m-%d %H:%M:%S}", f"{row.until:%Y-%m-%d %H:%M:%S}"
