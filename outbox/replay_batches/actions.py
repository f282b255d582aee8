"""What a batch does to letters: each verb's judgement before the action, and the action itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from config.flows import letters_of
from config.redelivery import Judgement, Refusal
from outbox.letters import redelivery
from outbox.letters.filters import STARTS
from outbox.letters.models import DeadLetter
from outbox.replay_batches import rules
from outbox.replay_batches.models import ReplayBatch, ReplayItem

GONE = "The letter is gone: its month was dropped."
FASTER = "Somebody was faster."
ACTED = ("requeued", "verified", "failed_again")  # states of items whose letter their batch has moved on
REFUSED_NOW = "It would be refused now."


def foresee(verb: str, letters: Mapping[UUID, DeadLetter], now: datetime) -> dict[UUID, str]:
    """What `judge` will say; a letter that its flow breaks on says so and spares the others."""
    return judge(verb, letters, now, redelivery.foresee)


def judge(
    verb: str, letters: Mapping[UUID, DeadLetter], now: datetime, ask: Callable[..., Any] = redelivery.judge
) -> dict[UUID, str]:
    """Why each letter is not eligible now; empty for one that is. Nothing is written."""
    start = STARTS[verb]
    closed = [letter for letter in letters.values() if letter.status != start]
    batches = who_took([letter.pk for letter in closed if letter.status != "open"]) if closed else {}
    found = {letter.pk: why_closed(letter, batches.get(letter.pk, "")) for letter in closed}
    ready = [letter for pk, letter in sorted(letters.items()) if pk not in found]
    if verb != "requeue":
        return {**dict.fromkeys((letter.pk for letter in ready), ""), **found}
    return {**found, **{pk: why_not(judgement) for pk, judgement in ask(ready, now).items()}}


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
    if verb != "requeue":
        return False
    try:
        return letters_of(source).awaited(step)
    except Refusal:
        return False


def in_line(batch: ReplayBatch) -> bool:
    """Whether live traffic waits behind what this batch takes back."""
    return batch.verb == "requeue" and any(waits and letters_of(source).in_line for source, _, waits in batch.kinds)


def holdup(verb: str, letters: Sequence[DeadLetter], now: datetime) -> str:
    """Why these letters of one source have to wait now; empty when they can go."""
    if verb != "requeue" or not letters:
        return ""
    try:
        return letters_of(letters[0].source).holdup(letters, now)
    except Refusal:
        return ""


def pace_for(batch: ReplayBatch, kinds: Sequence[Sequence[Any]]) -> dict[str, object]:
    """The rate of a batch where nobody has chosen one: the channel's own or 50/s where an effect is awaited."""
    slow = {source for source, _step, waits in kinds if waits}
    if batch.rate is not None or not slow:
        return {}
    return {"rate": min(letters_of(source).pace() or rules.DEFAULT_RATE for source in slow)}
