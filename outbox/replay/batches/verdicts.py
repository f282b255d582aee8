"""What became of the letters that a batch has taken back: proof is looked for, then the batch counts it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db import transaction

from config.database.clock import database_now
from config.flows import Effect
from config.verdicts import EffectState
from outbox.letters import proof
from outbox.letters.models import DeadLetter
from outbox.replay.batches import chunk
from outbox.replay.batches.models import BEGUN, ReplayBatch, ReplayItem
from outbox.replay.batches.outcomes import ItemOutcome, of_effect

EFFECTS: dict[str, EffectState] = {
    "resolved": "resolved", "failed_again": "failed_again", "discarded": "discarded",
}  # fmt: skip


def look(batch_id: int, token: uuid.UUID, items: Sequence[ReplayItem]) -> int:
    """Look for the effect of these items' letters, and count what is known; returns how many were judged."""
    if not items:
        return 0
    ids = [item.letter for item in items]
    proof.look_after_these(ids, database_now())
    fates = {letter.pk: letter for letter in _fates(ids)}
    if not any(_outcome(item, fates.get(item.letter)) for item in items):
        return 0
    return _count(batch_id, token, items, fates)


def _count(batch_id: int, token: uuid.UUID, items: Sequence[ReplayItem], fates: dict[uuid.UUID, DeadLetter]) -> int:
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, *BEGUN)
        if batch is None:
            return 0
        still = ReplayItem.objects.filter(pk__in=[item.pk for item in items], state="requeued").oldest_first()
        outcomes = [found for item in still if (found := _outcome(item, fates.get(item.letter)))]
        chunk.settle(batch, outcomes, database_now())
    return len(outcomes)


def _fates(ids: Sequence[uuid.UUID]) -> Sequence[DeadLetter]:
    columns = ("id", "status", "evidence", "note", "successor")
    return list(DeadLetter.objects.filter(pk__in=ids).only(*columns))


def _outcome(item: ReplayItem, letter: DeadLetter | None) -> ItemOutcome | None:
    """None while nobody knows."""
    if letter is None:
        return ItemOutcome(item, "refused", "The letter is gone before its effect was seen.")
    if letter.status == "open":  # discarded on its way, and restored
        return ItemOutcome(item, "skipped", "Somebody opened it again.")
    if letter.status not in EFFECTS:
        return None
    found = Effect(EFFECTS[letter.status], letter.evidence or letter.note, successor=letter.successor)
    return of_effect(item, "requeue", found)
