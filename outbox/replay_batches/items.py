"""The items of a batch: which go next, what became of each, how long they are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from config.database.queries import delete_in_chunks
from config.database.retry import Stale
from config.database.upsert import Rewrite
from config.letters import Effect
from outbox.letters.field_changes import FieldChange
from outbox.letters.models import fitting
from outbox.replay_batches import pacing
from outbox.replay_batches.models import SENDING, ReplayBatch, ReplayItem

# -- What became of an item, and the one statement that writes it for a whole chunk --------------------------
LONGEST_NOTE = 500
MOST_REASONS = 50
OTHER = "for other reasons"
ITEMS = Rewrite(
    ReplayItem, key="id", changes="state successor note", constants="changed_at", guard="old.state <> 'left'"
)


class PreviewItem(NamedTuple):
    """An item as a preview needs it: the fields are its columns."""

    pk: int
    letter: UUID
    source: str
    state: str
    note: str
    size: int


@dataclass(frozen=True)
class ItemOutcome:
    """The next state of an item, why, and the letter that took its place."""

    item: ReplayItem | PreviewItem
    state: str
    note: str = ""
    successor: UUID | None = None

    @property
    def verdict(self) -> bool | None:
        """Good or bad for the stop rule; None where nothing was tried, or nobody knows yet."""
        return {"verified": True, "failed_again": False, "refused": False}.get(self.state)


def of_effect(item: ReplayItem, verb: str, effect: Effect) -> ItemOutcome:
    """What an effect means for an item of this verb."""
    if effect.state in ("refused", "failed_again"):
        return ItemOutcome(item, effect.state, effect.evidence, effect.successor or item.successor)
    if verb not in SENDING or effect.state == "resolved":
        return ItemOutcome(item, "verified", effect.evidence, effect.successor or item.successor)
    if effect.state == "discarded":
        return ItemOutcome(item, "skipped", effect.evidence or "it was cancelled on its way", item.successor)
    return ItemOutcome(item, "requeued", effect.evidence, effect.successor)


def write(outcomes: Sequence[ItemOutcome], now: datetime) -> None:
    """Write the states of items, in the caller's transaction, which has locked their batch.

    Raises Stale where one is not there any more: nothing may stay.
    """
    rows = [
        (outcome.item.pk, outcome.state, outcome.successor and outcome.successor.hex, outcome.note[:LONGEST_NOTE])
        for outcome in outcomes
    ]
    if rows and ITEMS.run(rows, {"changed_at": now}) != len(rows):
        raise Stale("items of a batch were changed by somebody else")


def with_reasons(known: dict[str, int], reasons: Iterable[str]) -> dict[str, int]:
    """The number of skipped letters by reason; beyond fifty reasons in one more."""
    counts = Counter(known)
    for why in reasons:
        counts[why if why in counts or len(counts) < MOST_REASONS else OTHER] += 1
    return dict(counts)


# -- Which letters of a batch go next ------------------------------------------------------------------------
# Its canary, its window of awaited effects, one of a business key at a time.
SCANNED = 2_000  # items that are looked at for letters whose key is free


def in_flight(batch: ReplayBatch) -> list[ReplayItem]:
    """Awaited letters that were taken back and are not judged: the window, and what another rate had let out."""
    rows = ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()
    return list(_of_kind(batch, rows, awaited=True)[: 2 * pacing.MOST_WINDOW])


def next_items(batch: ReplayBatch, flying: Sequence[ReplayItem], most: int, window: int) -> list[ReplayItem]:
    """At most `most` items whose turn it is, oldest first; none while `window` of them are in flight."""
    rows = ReplayItem.objects.of(batch).filter(state="eligible").oldest_first()
    if batch.state == ReplayBatch.State.CANARY:
        rows = rows.filter(canary=True)
    items = list(_of_kind(batch, rows, awaited=False)[:most])
    room = min(most, window - len(flying))
    return items or (_free(_of_kind(batch, rows, awaited=True), flying, room) if room > 0 else [])


Item = TypeVar("Item", PreviewItem, ReplayItem)


def first_portion(items: Sequence[Item], portions: int = 1) -> Sequence[Item]:
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
    free: list[ReplayItem] = []
    for item in rows.exclude(business_key__in=taken)[:SCANNED]:
        if item.business_key and item.business_key in taken:
            continue
        taken.add(item.business_key)
        free.append(item)
        if len(free) == room:
            break
    return free


# -- How long the letters of a batch are listed --------------------------------------------------------------
# As long as letters are kept; the batch and its totals stay.
def sweep_items(now: datetime) -> int:
    """Delete the items of batches that ended longer ago than DEAD_LETTER_RETENTION_DAYS; returns how many."""
    old = now - timedelta(days=settings.DEAD_LETTER_RETENTION_DAYS)
    _throw_away(old, now)
    ended = ReplayBatch.objects.filter(finished_at__lt=old, items_gone_at=None, requeued=0)
    swept = 0
    for batch in ended.order_by("pk"):
        # Said first: a sweep that is killed half-way must not leave totals that look wrong.
        kept = FieldChange.of(batch.edit).without_values() if batch.edit else {}
        ReplayBatch.objects.filter(pk=batch.pk).update(items_gone_at=now, edit=kept)
        swept += delete_in_chunks(ReplayItem.objects.of(batch))
    return swept + _rest(now)


def _throw_away(old: datetime, now: datetime) -> None:
    """Previews that nobody has confirmed in all that time: a worker puts their letters back, as of any cancelled batch."""
    drafts = ReplayBatch.objects.filter(state=ReplayBatch.State.PREVIEWED, previewed_at__lt=old)
    for draft in drafts.order_by("pk"):
        draft.change(state=ReplayBatch.State.CANCELLED, note="Cancelled: nobody confirmed it.", finished_at=now)


def _rest(now: datetime) -> int:
    """What a killed sweep has left, however long ago."""
    left = ReplayBatch.objects.filter(Exists(ReplayItem.objects.filter(batch=OuterRef("pk"))), items_gone_at__lt=now)
    return sum(delete_in_chunks(ReplayItem.objects.of(batch)) for batch in left)
