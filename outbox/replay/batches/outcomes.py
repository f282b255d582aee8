"""What became of an item, and the one statement that writes it for a whole chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from config.database.errors import Stale
from config.database.rewrite import Rewrite
from config.flows import Effect
from outbox.replay.batches.models import ReplayItem

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
        return ItemOutcome(item, effect.state, effect.evidence, effect.successor)
    if verb != "requeue" or effect.state == "resolved":
        return ItemOutcome(item, "verified", effect.evidence)
    if effect.state == "discarded":
        return ItemOutcome(item, "skipped", effect.evidence or "it was cancelled on its way")
    return ItemOutcome(item, "requeued", effect.evidence)


def write(outcomes: Sequence[ItemOutcome], now: datetime) -> None:
    """Write the states of items, in the caller's transaction, which has locked their batch.

    Raises Stale where one is not there any more: nothing may stay.
    """
    rows = [
        (found.item.pk, found.state, found.successor and found.successor.hex, found.note[:LONGEST_NOTE])
        for found in outcomes
    ]
    if rows and ITEMS.run(rows, {"changed_at": now}) != len(rows):
        raise Stale("items of a batch were changed by somebody else")


def with_reasons(known: dict[str, int], reasons: Iterable[str]) -> dict[str, int]:
    """The number of skipped letters by reason; beyond fifty reasons in one more."""
    found = Counter(known)
    for why in reasons:
        found[why if why in found or len(found) < MOST_REASONS else OTHER] += 1
    return dict(found)
