"""Admin page of failure groups: what needs work, who works on it, and where it comes from."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any, cast

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html

from config.admin import humanize
from config.admin.filters import ByTime
from config.admin.html import chip, moment
from config.admin.lists import by_ids
from config.admin.pages import KeysetChangeList, LeverState, ReadOnlyAdmin, age_column, finds, number_column
from config.database.clock import database_now
from config.flows import flows, name_of, source_in_words
from outbox.admin.groups import figures as group_figures
from outbox.admin.groups.figures import Figures, figures, history_of, origins_of
from outbox.admin.groups.filters import (
    ByUrgency,
    FlowOfGroup,
    GroupCounts,
    OwnerOfGroup,
    StateOfGroup,
    batches_of,
    groups_in_work,
    numbers_by_state,
)
from outbox.admin.groups.levers import LEVERS, PAIRED, may_write, of_letters, ticket_url, words_page
from outbox.groups import counts
from outbox.groups.models import FailureGroup
from outbox.letters import redelivery
from outbox.letters.models import DeadLetter

NEWEST = 10
TABS = [
    ("Groups", "admin:outbox_failuregroup_changelist"),
    ("Letters", "admin:outbox_deadletter_changelist"),
    ("Replay batches", "admin:outbox_replaybatch_changelist"),
]
LETTERS = "admin:outbox_deadletter_changelist"
CHARTS = {group_figures.TWO_DAYS: "48 hours", group_figures.WEEK: "7 days"}


class GroupChangeList(KeysetChangeList):
    """Asks once what is in work, for the numbers of all states, and for the hours of all groups of a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        titles = {source: name_of(flow) for flow in flows() for source in flow.sources()}
        hours = counts.arrived_by_hour([row.pk for row in self.result_list], self.now, group_figures.DAY)
        for row in self.result_list:
            row.shown = row.shown_state(self.now, self.in_work)
            row.flow = titles.get(row.source, row.source)
            row.trend = group_figures.trend_of(hours[row.pk], row.shown == FailureGroup.State.REGRESSED)

    @cached_property
    def now(self) -> datetime:
        return database_now()

    @cached_property
    def in_work(self) -> frozenset[int]:
        return groups_in_work()

    @cached_property
    def by_state(self) -> dict[str, GroupCounts]:
        return numbers_by_state(self.now, self.in_work)

    @property
    def figures(self) -> Figures:
        return figures(self.now, self.by_state.values())

    @property
    def empty(self) -> tuple[str, str] | None:
        """That nothing needs work is good news; that a filter finds nothing is none."""
        if self.has_active_filters:
            return None
        last = FailureGroup.objects.filter(state=FailureGroup.State.RESOLVED).order_by("-state_since").first()
        said = f"The last group was resolved {humanize.ago(last.state_since, database_now())}: {last}. " if last else ""
        return "No dead letters need work", f"{said}A letter appears here when a message failed for good."


def _is_its_turn(state: LeverState, row: FailureGroup) -> bool:
    """Also for whoever has no right to pull it: a locked "Stop ignoring" says nothing of a group that nobody ignores."""
    return finds(state.lever.ready, row) if state.right else not state.locked


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin[FailureGroup]):
    place = 10
    tabs = TABS
    levers = LEVERS
    list_per_page = 25
    list_display = ["state_shown", "cause", "flow_shown", "count_open", "last_day", "first", "last", "owner"]
    list_display_links = ["cause"]
    list_filter = [StateOfGroup, FlowOfGroup, OwnerOfGroup]
    happened = ByTime("last seen", "last_seen")
    count_open = number_column("open_count", "Open", ("letter", "letters"))
    last = age_column("last_seen", "Last seen")

    # -- The list -------------------------------------------------------------------------------
    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[GroupChangeList]:
        return GroupChangeList

    def keyset_for(self, changelist: KeysetChangeList) -> ByUrgency:
        return ByUrgency(in_work=cast(GroupChangeList, changelist).in_work)

    @admin.display(description="State")
    def state_shown(self, row: Any) -> str:
        return chip(f"group_{row.shown}")

    @admin.display(description="Cause")
    def cause(self, row: FailureGroup) -> str:
        line = '{}<span class="sw-second"><code>{}</code>, step “{}”</span>'
        return format_html(line, row, row.reason, row.step)

    @admin.display(description="Flow")
    def flow_shown(self, row: Any) -> str:
        return row.flow

    @admin.display(description="Last 24 hours")
    def last_day(self, row: Any) -> str:
        return format_html('{}<span class="sw-second">{}</span>', *row.trend)

    @admin.display(description="First seen")
    def first(self, row: FailureGroup) -> str:
        when = timezone.localtime(row.first_seen)
        age = moment(when, humanize.ago(when, timezone.now()))
        return format_html('{}<span class="sw-second">{}</span>', age, f"{when.day} {when:%b %Y %H:%M}")

    @admin.display(description="Owner")
    def owner(self, row: FailureGroup) -> str:
        return row.owner_name or format_html('<b class="sw-toned sw-warn">{}</b>', "Nobody")

    # -- One group ------------------------------------------------------------------------------
    def detail(self, request: HttpRequest, row: FailureGroup) -> dict[str, object]:
        now = database_now()
        letters = DeadLetter.objects.of_group(row.pk).open().newest_first().defer("traceback")
        span = group_figures.WEEK if request.GET.get("hours") == str(group_figures.WEEK) else group_figures.TWO_DAYS
        newest = by_ids(letters, NEWEST)
        judged, batches = redelivery.foresee(newest, now), batches_of(row)
        return {
            "title": f"{source_in_words(row.source)}: {row}",
            "shown": f"group_{row.shown_state(now, [row.pk] if batches else [])}",
            "batches": batches,
            "letters": newest,
            "judged": [(letter, judged.get(letter.pk)) for letter in newest],
            "letters_count": row.open_count,
            "letters_url": f"{reverse(LETTERS)}?group__id__exact={row.pk}",
            "chart": group_figures.chart_of(counts.arrived_by_hour([row.pk], now, span)[row.pk], now),
            "spans": [(hours_, words, hours_ == span) for hours_, words in CHARTS.items()],
            "origins": origins_of(row.pk),
            "may_write": may_write(request),
            "ticket_url": ticket_url(row.ticket),
            "history": history_of(row),
        }

    def offered(self, request: HttpRequest, states: list[LeverState], row: FailureGroup) -> list[LeverState]:
        """Those on its letters first; of two levers that undo each other only the one that can be pulled."""
        mine = [state for state in states if state.lever.name not in PAIRED or _is_its_turn(state, row)]
        return sorted([*of_letters(request, row, self.opts), *mine], key=lambda state: state.lever.harm)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.words_view)
        return [path("<int:pk>/words/", view, name="outbox_failuregroup_words"), *super().get_urls()]

    def words_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Note, ticket and hint of one group."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        group = FailureGroup.objects.filter(pk=pk).first() if pk < 2**63 else None
        if group is None:
            raise Http404
        context = {**self.admin_site.each_context(request), "opts": self.opts}
        return words_page(request, group, context)
