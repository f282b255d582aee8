"""What a flow says of its dead letters: may they be taken back, what became of them, may a copy be edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

# -- What a flow says of its dead letters: what would happen to them, and what became of them ----------------
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


# -- What a flow says of edited copies of its letters; as it stands here, a flow takes none ------------------
class TakesCopies:
    """The part of a flow that is about copies. A copy is a letter with another payload: `judge` and `take_back` get it."""

    def why_not_edited(self, letter: Any) -> str:
        """Why nobody may edit a copy of this letter, in one sentence; empty where somebody may."""
        return "Its flow takes no edited copies."

    def locked(self, letter: Any) -> Sequence[str]:
        """Paths in its JSON that say what its effect is about; a copy says the same there.

        With a `?` behind it, a path that is missing stays missing.
        """
        return ()

    def identity(self, letter: Any) -> str:
        """What its effect is about, from a payload that the gate lets through; empty where `locked` says it all."""
        return ""

    def faults(self, letter: Any) -> Sequence[str]:
        """What the gate that judges arrivals says against its payload; nothing when it lets it through."""
        return ()


# -- What a flow does with its dead letters: judge them, take them back, say what became of them -------------
class TakesLetters(TakesCopies):
    """The part of a flow that is about letters; as it stands here, a flow has none."""

    def sources(self) -> Sequence[str]:
        """The dead-letter sources this flow can take back."""
        return ()

    def judge(self, letters: Sequence[Any], now: datetime) -> Mapping[UUID, Judgement]:
        """What `take_back` would do with each of at most 500 letters of one source; nothing is written."""
        raise NotImplementedError(f"{type(self).__name__} names sources of letters, and judges none")

    def take_back(self, letters: Sequence[Any], now: datetime) -> Mapping[UUID, Effect]:
        """Handle at most 500 letters of one source again, in the caller's transaction; they are locked and open.

        A letter that cannot be taken now is `refused`, with the reason as its evidence. May raise a DatabaseError
        about the data of one of them: the caller then tries parts of them.
        """
        raise NotImplementedError(f"{type(self).__name__} names sources of letters, and takes none back")

    def effect(self, letters: Sequence[Any], now: datetime) -> Mapping[UUID, Effect]:
        """What became of at most 500 requeued letters of one source, by keyed looks; `waiting` without proof."""
        return {}

    def awaited(self, source: str, step: str = "") -> bool:
        """Whether the effect comes later and goes through something that can be flooded: a replay keeps a window."""
        return False

    def holdup(self, letters: Sequence[Any], now: datetime) -> str:
        """Why a replay of these letters of one source has to wait now, in one line; empty when they can go."""
        return ""

    def pace(self, source: str) -> float:
        """Letters a second that what awaits their effect takes; 0 where nobody has set a limit."""
        return 0.0

    def in_line(self, source: str) -> bool:
        """Whether letters taken back stand in one line with live traffic, which then waits behind them."""
        return False

    def patience(self, source: str) -> timedelta:
        """How long a requeued letter may be without its effect before somebody should look."""
        return timedelta(hours=1)

    def restore(self, letter: Any, now: datetime) -> str:
        """Open again what `discard` closed besides the letter; raises Refusal when that cannot be done."""
        return "open again"

    def letters_about(self, key: str) -> Sequence[str]:
        """The business keys of the letters that somebody looks for who searches for this key; a few, by an index."""
        return ()

    def discard(self, letter: Any, now: datetime) -> str:
        """Close what else belongs to a letter that is discarded."""
        return "discarded"

    def readable(self, source: str) -> Sequence[str]:
        """Paths in this source's JSON whose values anybody may read who sees the page: `order_id`, `items[].sku`."""
        return ()

    def named(self, source: str) -> Sequence[str]:
        """Paths whose names may be read, and whose values only after a reveal."""
        return ()
