"""Filters of the list of groups, whose states carry their numbers, and of the list of letters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Count, Q
from django.http import HttpRequest
from django.utils import timezone

from config.admin.read_only import Segments
from config.flows import Flow, flows
from outbox.admin.groups.live import groups_in_work
from outbox.admin.groups.order import RANKS, with_rank
from outbox.groups.models import FailureGroup

WORK = "work"
SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


def name_of(flow: Flow) -> str:
    """What people call a flow."""
    return type(flow).__name__


class StateOfGroup(Segments):
    title = "state"
    parameter_name = "state"
    choices_in_words = [
        (WORK, "Needs work"), ("new", "New"), ("regressed", "Regressed"), ("open", "Open"),
        ("acknowledged", "Acknowledged"), ("resolving", "Resolving"), ("ignored", "Ignored"), ("resolved", "Resolved"),
        ("all", "All"),
    ]  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen, now = self.chosen(), timezone.now()
        if chosen == WORK:
            return queryset.needing_work(now)  # type: ignore[attr-defined]
        return queryset if chosen == "all" else queryset.in_state(chosen, now, groups_in_work())  # type: ignore[attr-defined]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """With the number of groups in each state that has letters to look at; the others are never counted."""
        numbers = numbers_by_state()
        for choice, (value, _) in zip(super().choices(changelist), self.choices_in_words, strict=True):
            yield {**choice, "number": numbers.get(value)}


def numbers_by_state() -> dict[str, int]:
    """How many groups with open or requeued letters are shown in each state."""
    alive = FailureGroup.objects.filter(Q(open_count__gt=0) | Q(requeued_count__gt=0))
    now = timezone.now()
    found = with_rank(alive, now, groups_in_work()).order_by().values_list("rank").annotate(number=Count("pk"))
    return {WORK: FailureGroup.objects.needing_work(now).count(), **{RANKS[rank]: number for rank, number in found}}


class FlowOfGroup(Segments):
    title = "flow"
    parameter_name = "flow"

    @property
    def choices_in_words(self) -> list[tuple[str, str]]:  # type: ignore[override]
        named = [(flow.name, name_of(flow)) for flow in flows() if flow.sources()]
        return [("all", "All"), *named]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        sources = next((flow.sources() for flow in flows() if flow.name == chosen), None)
        return queryset if sources is None else queryset.of_sources(sources)  # type: ignore[attr-defined]


class OwnerOfGroup(Segments):
    title = "owner"
    parameter_name = "owner"
    choices_in_words = [("all", "Anybody"), ("me", "Me"), ("nobody", "Nobody")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        if chosen == "me":
            return queryset.filter(owner_id=request.user.pk)
        return queryset.filter(owner_name="") if chosen == "nobody" else queryset


class LastSeen(Segments):
    title = "last seen"
    parameter_name = "seen"
    choices_in_words = [("all", "Any time"), ("hour", "1 h"), ("day", "24 h"), ("week", "7 days")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        span = SPANS.get(self.chosen())
        return queryset.filter(last_seen__gte=timezone.now() - span) if span else queryset


class FlowOfLetter(Segments):
    """A source, because one value is what an index can begin with; a flow with several has several choices."""

    title = "flow"
    parameter_name = "source"
    field = "source"

    @property
    def choices_in_words(self) -> list[tuple[str, str]]:  # type: ignore[override]
        named = [
            (source, name_of(flow) if len(flow.sources()) == 1 else f"{name_of(flow)}: {source}")
            for flow in flows()
            for source in flow.sources()
        ]
        return [("all", "All"), *named]
