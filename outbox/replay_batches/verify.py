"""What must hold of the edited copies of batches: each is what the change makes of its letter, and none is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from config.database.queries import by_key
from config.flows import Check
from config.letters import Refusal
from config.payload import digest
from outbox.bookkeeping.verify import OFFENDERS
from outbox.letters.edits import bytes_of
from outbox.letters.field_changes import FieldChange
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.replay_batches.models import ReplayBatch, ReplayItem

CHUNK = 25  # a letter has up to four megabytes
COPIED = ("requeued", "verified", "failed_again")


def copies_are_what_the_change_makes() -> Check:
    """Of batches whose letters are listed: with the items go the values of the change."""
    rows: list[object] = []
    for batch in ReplayBatch.objects.filter(verb="edit", items_gone_at=None).order_by("pk"):
        change = FieldChange.of(batch.edit) if batch.edit else None
        items = ReplayItem.objects.of(batch).filter(state__in=COPIED)
        for chunk in by_key(items.values_list("pk", "letter"), CHUNK):
            wrong = _without_their_copy(change, [letter for _, letter in chunk])
            rows += [{"batch": batch.pk, "letter": str(letter)} for letter in wrong]
    return Check("every copy that a batch has taken back is what its change makes of the letter", rows=rows[:OFFENDERS])


def _without_their_copy(change: FieldChange | None, ids: Sequence[UUID]) -> Iterator[UUID]:
    copies = set(PayloadRevision.objects.filter(letter__in=ids).values_list("letter", "digest_after"))
    for pk, payload in DeadLetter.objects.filter(pk__in=ids).order_by("pk").values_list("pk", "payload"):
        if change is None or (pk, _made_of(bytes(payload or b""), change)) not in copies:
            yield pk


def _made_of(payload: bytes, change: FieldChange) -> str:
    """The digest of the copy; empty where the letter, or the change, is not what it was."""
    try:
        return digest(bytes_of(change.apply(payload.decode())))
    except (Refusal, UnicodeDecodeError):
        return ""
