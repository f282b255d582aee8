"""The order of the list of groups: the most urgent state first, then the last seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Case, IntegerField, Q, Value, When
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from config.admin.keyset import BETWEEN, Keyset
from outbox.admin.groups.live import groups_in_work
from outbox.groups.queries import ignored_long_enough

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

    def page(self, rows: models.QuerySet, cursor: str, backwards: bool, size: int) -> tuple[list[Any], bool]:
        rows = with_rank(rows, timezone.now(), groups_in_work())
        if cursor:
            rows = rows.filter(_beyond(cursor, backwards))
        ordering = ["-rank", "last_seen", "pk"] if backwards else ["rank", "-last_seen", "-pk"]
        found = list(rows.order_by(*ordering)[: size + 1])
        page = found[:size]
        return (page[::-1] if backwards else page), len(found) > size

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
