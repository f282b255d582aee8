"""What a batch does to letters: each verb's judgement before the deed, and the deed itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from config.flows import Effect, Judgement, Refusal, flow_of
from outbox.letters import proof
from outbox.letters.filters import STARTS
from outbox.letters.models import DeadLetter
from outbox.replay.batches.models import ReplayBatch
from outbox.replay.rules import pace

GONE = "The letter is gone: its month was dropped."
FASTER = "Somebody was faster."
REFUSED_NOW = "It would be refused now."


def judge(verb: str, letters: Mapping[UUID, DeadLetter], now: datetime) -> dict[UUID, str]:
    """Why each letter is not eligible now; empty for one that is. Nothing is written."""
    start = STARTS[verb]
    found = {pk: why_closed(letter) for pk, letter in letters.items() if letter.status != start}
    ready = [letter for pk, letter in sorted(letters.items()) if pk not in found]
    if verb != "requeue":
        return {**dict.fromkeys((letter.pk for letter in ready), ""), **found}
    return {**found, **{pk: why_not(judgement) for pk, judgement in proof.judge(ready, now).items()}}


def why_closed(letter: DeadLetter) -> str:
    """A letter that another lever, or its own replay, has moved on."""
    return f"It is {letter.status.replace('_', ' ')} already." if letter.status != "open" else "It is open."


def why_not(judgement: Judgement) -> str:
    """The reason of a judgement in one line, the same for all letters that share it."""
    if judgement.eligible:
        return ""
    words = [] if judgement.why and judgement.verdict == REFUSED_NOW else [judgement.verdict]
    return " ".join(filter(None, [*words, judgement.why])) or "It cannot be taken back now."


def act(verb: str, letters: Sequence[DeadLetter], now: datetime, code: str) -> Mapping[UUID, Effect]:
    """Do it, in the caller's transaction; a letter that somebody else has moved meanwhile is not in the answer."""
    if verb == "requeue":
        return proof.take_back(letters, now)
    if verb == "discard":
        return proof.discard(letters, now, code)
    return (proof.resolve if verb == "resolve" else proof.restore)(letters, now)


def awaited(verb: str, source: str, step: str = "") -> bool:
    """Whether the effect comes later, through something that can be flooded."""
    if verb != "requeue":
        return False
    try:
        return flow_of(source).awaited(source, step)
    except Refusal:
        return False


def holdup(verb: str, letters: Sequence[DeadLetter], now: datetime) -> str:
    """Why these letters of one source have to wait now; empty when they can go."""
    if verb != "requeue" or not letters:
        return ""
    try:
        return flow_of(letters[0].source).holdup(letters, now)
    except Refusal:
        return ""


def pace_for(batch: ReplayBatch, kinds: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The rate of a batch where nobody has chosen one: the channel's own or 50/s where an effect is awaited."""
    slow = {source for source, _step, waits in kinds if waits}
    if batch.rate is not None or not slow:
        return {}
    return {"rate": min(flow_of(source).pace(source) or pace.DEFAULT_RATE for source in slow)}
