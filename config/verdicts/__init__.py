"""What a flow says of its dead letters: what would happen to them, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

Tone = Literal["bad", "warn", "info", "ok", "idle"]
EffectState = Literal["waiting", "resolved", "failed_again", "discarded", "refused"]


@dataclass(frozen=True)
class Judgement:
    """Whether a letter may be taken back now, and what would happen: the bold first words, the rest."""

    eligible: bool
    verdict: str
    why: str = ""
    tone: Tone = "info"


@dataclass(frozen=True)
class Effect:
    """What became of a letter that was taken back; `refused` leaves it open, `waiting` has no proof yet."""

    state: EffectState
    evidence: str = ""  # in words, with the receipt, the batch or the rows
    url: str = ""
    successor: UUID | None = None  # the letter of the next revision
    carrier: UUID | None = None  # the message or batch that carries the effect, where it is not the letter's own


class Refusal(Exception):
    """A lever cannot do this now; the text tells the person why."""
