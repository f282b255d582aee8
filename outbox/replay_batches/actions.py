"""What a batch does to letters: each verb's judgement before the action, and the action itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from config.flows import letters_of
from config.redelivery import Effect, Judgement, Refusal
from outbox.letters import levers, redelivery
from outbox.letters.edits import copies_for, take_back_copies
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import STARTS
from outbox.letters.models import DeadLetter
from outbox.processes.overview import why_missing
from outbox.replay_batches import rules
from outbox.replay_batches.models import SENDING, ReplayBatch, ReplayItem

GONE = "The letter is gone: its month was dropped."
FASTER = "Somebody was faster."
ACTED = ("requeued", "verified", "failed_again")  # states of items whose letter their batch has moved on
REFUSED_NOW = "It would be refused now."


class Judged(NamedTuple):
    """Why each letter is not eligible now, empty for one that is; and what would be acted on, some of it edited copies."""

    why: dict[UUID, str]
    ready: Sequence[DeadLetter]


Ask = Callable[[Sequence[DeadLetter], datetime], Mapping[UUID, Judgement]]


def foresee(batch: ReplayBatch, letters: Mapping[UUID, DeadLetter], now: datetime) -> dict[UUID, str]:
    """What `judge` will say; a letter that its flow breaks on says so and spares the others."""
    return judge(batch, letters, now, redelivery.foresee).why


def judge(batch: ReplayBatch, letters: Mapping[UUID, DeadLetter], now: datetime, ask: Ask = redelivery.judge) -> Judged:
    """Which letters the verb of a batch can act on now. Nothing is written."""
    start = STARTS[batch.verb]
    closed = [letter for letter in letters.values() if letter.status != start]
    batches = who_took([letter.pk for letter in closed if letter.status != "open"]) if closed else {}
    found = {letter.pk: why_closed(letter, batches.get(letter.pk, "")) for letter in closed}
    left = [letter for pk, letter in sorted(letters.items()) if pk not in found]
    if batch.verb == "edit":
        left, spared = copies_for(FieldChange.of(batch.edit), left)
        found |= spared
    if batch.sends:
        found |= {pk: why_not(judgement) for pk, judgement in ask(left, now).items()}
    return Judged(dict.fromkeys(letters, "") | found, [letter for letter in left if not found.get(letter.pk)])


def act(
    batch: ReplayBatch, ready: Sequence[DeadLetter], letters: Mapping[UUID, DeadLetter], now: datetime
) -> Mapping[UUID, Effect]:
    """Do what the batch is for to what `judge` found ready of these letters, in the caller's transaction.

    A letter that somebody else has moved meanwhile is not in the answer.
    """
    if batch.verb == "edit":
        return take_back_copies(ready, letters, batch.requested_by, batch.user_id, batch.reason, now)
    return levers.act(batch.verb, ready, now, batch.code)


def who_took(ids: Sequence[UUID]) -> dict[UUID, str]:
    """`{letter: replay batch and whose}` for those of these letters that a batch has acted on; the newest one counts."""
    acted = ReplayItem.objects.filter(letter__in=ids, state__in=ACTED).order_by("batch_id").select_related("batch")
    return {item.letter: f"{item.batch} of {item.batch.requested_by}" for item in acted}


def why_closed(letter: DeadLetter, by: str = "") -> str:
    """A letter that another lever, a batch, or its own replay has moved on."""
    if letter.status == "open":
        return "It is open."
    return f"It is {letter.status.replace('_', ' ')} already{f': {by}' if by else ''}."


def why_not(judgement: Judgement) -> str:
    """The reason of a judgement in one line, the same for all letters that share it."""
    if judgement.eligible:
        return ""
    words = [] if judgement.why and judgement.verdict == REFUSED_NOW else [judgement.verdict]
    return " ".join(filter(None, [*words, judgement.why])) or "It cannot be taken back now."


def awaited(verb: str, source: str, step: str = "") -> bool:
    """Whether the effect comes later, through something that can be flooded."""
    if verb not in SENDING:
        return False
    try:
        return letters_of(source).awaited(step)
    except Refusal:
        return False


def in_line(batch: ReplayBatch) -> bool:
    """Whether live traffic waits behind what this batch takes back."""
    return batch.sends and any(waits and letters_of(source).in_line for source, _, waits in batch.kinds)


def holdup(verb: str, letters: Sequence[DeadLetter], now: datetime) -> str:
    """Why these letters of one source have to wait now; empty when they can go."""
    if verb not in SENDING or not letters:
        return ""
    try:
        return letters_of(letters[0].source).holdup(letters, now)
    except Refusal:
        return ""


def standstill(letters: Sequence[DeadLetter], now: datetime) -> str:
    """Why these letters of one source, on their way, get no further; empty where nobody says."""
    try:
        theirs = letters_of(letters[0].source)
    except Refusal:
        return ""
    return theirs.standstill(letters, now) or why_missing(theirs.carriers(letters), now)


def pace(kinds: Sequence[Sequence[Any]]) -> float:
    """Letters a second: the least of what their channels take, 50 where none says."""
    return min(
        letters_of(source).pace() or rules.DEFAULT_RATE for source in {source for source, _step, _waits in kinds}
    )
