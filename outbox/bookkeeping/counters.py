"""Durable counts per flow and per minute, added in one statement each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db.models import Sum

from config.database.upsert import Upsert
from outbox.bookkeeping.models import FlowCounter, FlowMinute

ADD = Upsert(
    FlowCounter,
    columns="flow scope name value",
    key="flow scope name",
    update={"value": "old.value + new.value"},
)
ADD_MINUTE = Upsert(
    FlowMinute,
    columns="flow name minute value",
    key="flow name minute",
    update={"value": "old.value + new.value"},
)

Counts = Mapping[tuple[str, str, str], int]


def add(counts: Counts, now: datetime) -> None:
    """Add `{(flow, scope, name): n}` to the durable counters and to the current minute.

    Call it last in a transaction: these rows are shared by all workers, so their locks must be short, and
    they are written in sorted order, so that two workers never deadlock.
    """
    rows = [(*key, number) for key, number in sorted(counts.items()) if number]
    if not rows:
        return
    ADD.run(rows)
    minute = minute_of(now)
    per_minute: dict[tuple[str, str, int], int] = {}
    for flow, _scope, name, number in rows:
        per_minute[flow, name, minute] = per_minute.get((flow, name, minute), 0) + number
    ADD_MINUTE.run([(*key, number) for key, number in sorted(per_minute.items())])


def totals(flow: str) -> dict[str, int]:
    """`{name: value}` of a flow, over all its scopes."""
    rows = FlowCounter.objects.filter(flow=flow).values_list("name").annotate(total=Sum("value"))
    return {name: int(total) for name, total in rows}


def by_scope(flow: str) -> dict[str, dict[str, int]]:
    """`{scope: {name: value}}` of a flow."""
    result: dict[str, dict[str, int]] = {}
    for scope, name, value in FlowCounter.objects.filter(flow=flow).values_list("scope", "name", "value"):
        result.setdefault(scope, {})[name] = value
    return result


def history(flow: str, name: str, now: datetime, minutes: int = 24) -> list[int]:
    """Counts of the last `minutes` minutes, oldest first; the last one is the minute under way."""
    first = minute_of(now) - minutes + 1
    known = dict(FlowMinute.objects.filter(flow=flow, name=name, minute__gte=first).values_list("minute", "value"))
    return [known.get(minute, 0) for minute in range(first, first + minutes)]


def minute_of(now: datetime) -> int:
    """Minutes since 1970."""
    return int(now.timestamp() // 60)
