"""The list of groups: its filters with their numbers, its order, and which groups a live batch works on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.admin import ModelAdmin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Case, Count, Exists, IntegerField, OuterRef, Q, Sum, Value, When
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from config.admin.filters import Segments
from config.admin.lists import BETWEEN, Keyset, Row
from config.flows import flows, name_of, source_in_words
from outbox.groups.models import FailureGroup, FailureGroupQuerySet, ignored_long_enough, needs_work
from outbox.letters.filters import STARTS, Filter
from outbox.letters.models import DeadLetter, DeadLetterQuerySet
from outbox.replay_batches.models import LIVE, ReplayBatch

# -- Groups that a batch works on ----------------------------------------------------------------------------
AT_WORK = (*LIVE, "holding", "verifying")
WORKED_ON = ("open", "requeued")
MOST_IDS = 1000  # letters chosen one by one that are looked at


def groups_in_work() -> frozenset[int]:
    """Groups of which a live batch has pinned letters: the group it was asked about, or those its filter reaches.

    There are few batches, and fewer live ones; whatever they hold, these are at most three queries.
    """
    batches = list(ReplayBatch.objects.of_letters().filter(state__in=AT_WORK))
    asked = {batch.filter["group"] for batch in batches if batch.filter.get("group") is not None}
    reached = [_reached_by(batch) for batch in batches if _is_wide(batch)]
    wide = FailureGroup.objects.workable().filter(reduce(or_, reached)) if reached else FailureGroup.objects.none()
    chosen = DeadLetter.objects.filter(pk__in=_chosen(batches)).order_by().values_list("group_id", flat=True)
    return frozenset({*asked, *wide.values_list("pk", flat=True), *chosen.distinct()})


def batches_of(group: FailureGroup) -> list[ReplayBatch]:
    """The live batches that have pinned letters of one group, newest first."""
    batches = list(ReplayBatch.objects.of_letters().filter(state__in=AT_WORK).order_by("-pk"))
    oldest = _oldest_letter(group.pk) if any(map(_is_wide, batches)) else None
    wide = {batch.pk for batch in batches if _is_wide(batch) and oldest and _reaches(batch, group, oldest)}
    letters = DeadLetter.objects.filter(pk__in=_chosen(batches), group_id=group.pk)
    chosen = set(letters.values_list("pk", flat=True))
    return [
        batch
        for batch in batches
        if batch.filter.get("group") == group.pk or batch.pk in wide or chosen.intersection(_chosen([batch]))
    ]


def _is_wide(batch: ReplayBatch) -> bool:
    """Whether it takes open letters of any group that its filter reaches."""
    return STARTS[batch.verb] == "open" and not {"group", "ids"} & batch.filter.keys()


def _chosen(batches: Iterable[ReplayBatch]) -> Sequence[UUID]:
    """Letters that somebody chose one by one."""
    return [UUID(pk) for batch in batches for pk in batch.filter.get("ids", ())][:MOST_IDS]


def _end(batch: ReplayBatch) -> UUID | None:
    """The key up to which it has pinned: their ids rise with the time of arrival."""
    return min(filter(None, [batch.cut_off, Filter.of(batch.filter).id_range()[1]]), default=None)


def _reached_by(batch: ReplayBatch) -> Q:
    """Groups with a letter that it has pinned; their index says so, without reading a letter."""
    letters = _pinned(batch).filter(group_id=OuterRef("pk"))
    return Q(Exists(letters), source__in=batch.sources)


def _pinned(batch: ReplayBatch) -> DeadLetterQuerySet:
    """The letters of the time that it is about, while they are open or on their way."""
    letters = DeadLetter.objects.filter(status__in=WORKED_ON, pk__lte=_end(batch))
    start, _end_of_time = Filter.of(batch.filter).id_range()
    return letters.filter(pk__gte=start) if start else letters


def _reaches(batch: ReplayBatch, group: FailureGroup, oldest: UUID) -> bool:
    end = _end(batch)
    if group.source not in batch.sources or end is None or oldest > end:
        return False
    return not batch.filter.get("since") or _pinned(batch).of_group(group.pk).exists()


def _oldest_letter(group_id: int) -> UUID | None:
    """Of those that are open or on their way: one look into the index for each."""
    letters = DeadLetter.objects.of_group(group_id).order_by("pk").values_list("pk", flat=True)
    return min(filter(None, (letters.filter(status=status).first() for status in WORKED_ON)), default=None)


# -- The order of the list -----------------------------------------------------------------------------------
RANKS = ("regressed", "new", "open", "resolving", "acknowledged", "ignored", "resolved")
PLACES = {state: place for place, state in enumerate(RANKS)}


def with_rank(rows: models.QuerySet, now: datetime, in_work: Collection[int] = ()) -> models.QuerySet:
    """Groups with the place of the state that a page shows (`FailureGroup.shown_state`)."""
    over, owned = ignored_long_enough(now), ~Q(owner_name="")
    return rows.annotate(
        rank=Case(
            When(Q(pk__in=in_work) | Q(open_count=0, requeued_count__gt=0), then=Value(PLACES["resolving"])),
            When(over & Q(open_count=0), then=Value(PLACES["resolved"])),
            When(over & owned, then=Value(PLACES["acknowledged"])),
            When(over, then=Value(PLACES["open"])),
            *(When(state=state, then=Value(place)) for state, place in PLACES.items() if state != "resolving"),
            output_field=IntegerField(),
        )
    )


@dataclass(frozen=True)
class ByUrgency(Keyset):
    """There are few groups that need work: sorting them costs less than an index that every arrival changes."""

    in_work: Collection[int] = ()

    def page(self, rows: models.QuerySet[Row], cursor: str, backwards: bool, size: int) -> tuple[list[Row], bool]:
        rows = with_rank(rows, timezone.now(), self.in_work)
        if cursor:
            rows = rows.filter(_beyond(cursor, backwards))
        ordering = ["-rank", "last_seen", "pk"] if backwards else ["rank", "-last_seen", "-pk"]
        read = list(rows.order_by(*ordering)[: size + 1])
        page = read[:size]
        return (page[::-1] if backwards else page), len(read) > size

    def cursor(self, row: Any) -> str:
        return BETWEEN.join((str(row.rank), row.last_seen.isoformat(), str(row.pk)))


def _beyond(cursor: str, backwards: bool) -> Q:
    try:
        rank, when, pk = cursor.split(BETWEEN)
        place, moment, key = int(rank), parse_datetime(when), int(pk)
    except ValueError as error:
        raise ValidationError("not a place in this list") from error
    if moment is None or moment.tzinfo is None or abs(key) > 2**62 or abs(place) > len(RANKS):
        raise ValidationError("not a place in this list")
    less, more = ("gt", "lt") if backwards else ("lt", "gt")
    behind = Q(**{f"last_seen__{less}": moment}) | Q(last_seen=moment, **{f"pk__{less}": key})
    return Q(**{f"rank__{more}": place}) | (Q(rank=place) & behind)


# -- Filters of groups and letters ---------------------------------------------------------------------------
WORK = "work"


class StateOfGroup(Segments):
    title = "state"
    parameter_name = "state"
    choices_in_words = [
        (WORK, "Needs work"), ("new", "New"), ("regressed", "Regressed"), ("open", "Open"),
        ("acknowledged", "Acknowledged"), ("resolving", "Resolving"), ("ignored", "Ignored"), ("resolved", "Resolved"),
        ("all", "All"),
    ]  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        groups, chosen, now = cast(FailureGroupQuerySet, queryset), self.chosen(), timezone.now()
        if chosen == WORK:
            return groups.needing_work(now)
        return groups if chosen == "all" else groups.in_state(chosen, now, groups_in_work())

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """With the number of groups in each state that has letters to look at; the others are never counted."""
        by_state: Mapping[str, GroupCounts] = cast(Any, changelist).by_state
        numbers = {state: numbers.groups for state, numbers in by_state.items()}
        numbers[WORK] = sum(numbers.needing for numbers in by_state.values())
        for choice, (value, _) in zip(super().choices(changelist), self.choices_in_words, strict=True):
            yield {**choice, "number": numbers.get(value)}


class GroupCounts(NamedTuple):
    """Of the groups that a page shows in one state: how many, their open letters, those that need work, and of these
    those that nobody owns."""

    groups: int
    open_letters: int
    needing: int
    without_owner: int


def numbers_by_state(now: datetime, in_work: Collection[int]) -> dict[str, GroupCounts]:
    """Of the groups with open or requeued letters, in one query for the filter and the figures of the page."""
    needs = needs_work(now)
    counted = with_rank(FailureGroup.objects.workable(), now, in_work).order_by().values_list("rank")
    counted = counted.annotate(
        groups=Count("pk"),
        letters=Sum("open_count"),
        needing=Count("pk", filter=needs),
        free=Count("pk", filter=needs & Q(owner_name="")),
    )
    return {RANKS[rank]: GroupCounts(*map(int, numbers)) for rank, *numbers in counted}


class FlowOfGroup(Segments):
    title = "flow"
    parameter_name = "flow"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> Sequence[tuple[str, str]]:
        named = [(flow.name, name_of(flow)) for flow in flows() if flow.sources()]
        self.choices_in_words = [("all", "All"), *named]
        return self.choices_in_words

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        sources = next((flow.sources() for flow in flows() if flow.name == chosen), None)
        return queryset if sources is None else cast(FailureGroupQuerySet, queryset).of_sources(sources)


class OwnerOfGroup(Segments):
    title = "owner"
    parameter_name = "owner"
    choices_in_words = [("all", "Anybody"), ("me", "Me"), ("nobody", "Nobody")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        if chosen == "me":
            return queryset.filter(owner_id=request.user.pk)
        return queryset.filter(owner_name="") if chosen == "nobody" else queryset


class FlowOfLetter(Segments):
    """A source, because one value is what an index can begin with; a flow with several has several choices."""

    title = "flow"
    parameter_name = "source"
    field = "source"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> Sequence[tuple[str, str]]:
        named = [(source, source_in_words(source)) for flow in flows() for source in flow.sources()]
        self.choices_in_words = [("all", "All"), *named]
        return self.choices_in_words
