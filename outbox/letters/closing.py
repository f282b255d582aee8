"""Closes letters without their effect, and opens them again: discard, resolve, restore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from config.flows import Effect, Flow, Refusal, flow_of
from config.verdicts import EffectState
from outbox.letters.edges import Move, Status, locked, move
from outbox.letters.models import DeadLetter

# Why a letter is discarded, in one word: what a report over many discards can be counted by.
CODES = {
    "": "No code",
    "duplicate": "A duplicate",
    "outdated": "Nobody wants it any more",
    "elsewhere": "Done by other means",
    "malformed": "It can never be right",
    "test": "A test",
}
SAID: dict[Status, EffectState] = {
    Status.OPEN: "waiting",
    Status.RESOLVED: "resolved",
    Status.DISCARDED: "discarded",
}


def discard(letters: Sequence[DeadLetter], now: datetime, code: str = "") -> dict[UUID, Effect]:
    """Give letters up, with what else belongs to them, in the caller's transaction; nothing is deleted.

    A letter that is not open any more is not in the answer; one that its flow cannot discard stays open, `refused`.
    """
    return _close(letters, now, Status.OPEN, Status.DISCARDED, lambda letter: _flow(letter).discard(letter, now), code)


def resolve(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Mark letters as dealt with elsewhere, in the caller's transaction; the answer is that of `discard`."""
    return _close(letters, now, Status.OPEN, Status.RESOLVED, lambda letter: "resolved")


def restore(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Open discarded letters again, and what their discard closed; the answer is that of `discard`, `waiting` if open."""
    return _close(letters, now, Status.DISCARDED, Status.OPEN, lambda letter: _flow(letter).restore(letter, now))


def _close(
    letters: Sequence[DeadLetter],
    now: datetime,
    old: str,
    new: str,
    act: Callable[[DeadLetter], str],
    code: str = "",
) -> dict[UUID, Effect]:
    mine = locked([letter.pk for letter in letters], old)
    chosen = sorted((letter for letter in letters if letter.pk in mine), key=lambda letter: letter.pk)
    state = SAID[Status(new)]
    found: dict[UUID, Effect] = {}
    for letter in chosen:
        try:
            found[letter.pk] = Effect(state, act(letter))
        except Refusal as refusal:
            found[letter.pk] = Effect("refused", str(refusal))
    done = {pk: Move(new, note=effect.evidence, code=code) for pk, effect in found.items() if effect.state != "refused"}
    move(chosen, done, old, now)
    return found


def _flow(letter: DeadLetter) -> Flow:
    return flow_of(letter.source)
