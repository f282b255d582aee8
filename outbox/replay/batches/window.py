"""Which letters of a batch go next: its canary, its window of awaited effects, one of a business key at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet

from outbox.letters.queries import fitting
from outbox.replay.batches.models import ReplayBatch, ReplayItem
from outbox.replay.rules import pace

SCANNED = 2_000  # items that are looked at for letters whose key is free


def in_flight(batch: ReplayBatch) -> list[ReplayItem]:
    """Awaited letters that were taken back and are not judged: the window, and what another rate had let out."""
    rows = ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()
    return list(_of_kind(batch, rows, awaited=True)[: 2 * pace.MOST_WINDOW])


def next_items(batch: ReplayBatch, flying: Sequence[ReplayItem], most: int, window: int) -> list[ReplayItem]:
    """At most `most` items whose turn it is, oldest first; none while `window` of them are in flight."""
    rows = ReplayItem.objects.of(batch).filter(state="eligible").oldest_first()
    if batch.state == ReplayBatch.State.CANARY:
        rows = rows.filter(canary=True)
    found = list(_of_kind(batch, rows, awaited=False)[:most])
    room = min(most, window - len(flying))
    return found or (_free(_of_kind(batch, rows, awaited=True), flying, room) if room > 0 else [])


def first_portion(items: Sequence[Any], portions: int = 1) -> Sequence[Any]:
    """As many of these as may be in memory with their letters, beside as many more as there are other portions."""
    return items[: fitting((item.size for item in items), portions)]


def _of_kind(batch: ReplayBatch, rows: QuerySet, *, awaited: bool) -> QuerySet:
    """Those whose effect is awaited, or those others; most batches have one kind, which needs no condition."""
    kinds = [Q(source=source, step=step) for source, step, waits in batch.kinds if waits == awaited]
    if len(kinds) == len(batch.kinds):
        return rows
    return rows.filter(reduce(or_, kinds)) if kinds else rows.none()


def _free(rows: QuerySet, flying: Sequence[ReplayItem], room: int) -> list[ReplayItem]:
    """The oldest of each business key of which none is in flight; letters without a key stand alone."""
    taken = {item.business_key for item in flying if item.business_key}
    found: list[ReplayItem] = []
    for item in rows.exclude(business_key__in=taken)[:SCANNED]:
        if item.business_key and item.business_key in taken:
            continue
        taken.add(item.business_key)
        found.append(item)
        if len(found) == room:
            break
    return found
