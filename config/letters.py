"""What a flow says of its dead letters: may they be taken back, what became of them, may a copy be edited."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Literal, NamedTuple, TypeVar
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
    in_vain: bool = False  # it may be taken back, and fails again unless something changes elsewhere


@dataclass(frozen=True)
class Effect:
    """What became of a letter that was taken back; `refused` leaves it open, `waiting` has no proof yet."""

    state: EffectState
    evidence: str = ""  # in words, with the receipt, the batch or the rows
    url: str = ""
    successor: UUID | None = None  # the letter of the next revision
    carrier: UUID | None = None  # the message or batch that carries the effect, where it is not the letter's own

    @property
    def result(self) -> str:
        """What was done, as the letter's note and the audit log say it."""
        return f"failed again: {self.evidence}" if self.state == "failed_again" else self.evidence


class FormField(NamedTuple):
    """A text in a JSON payload that people edit without its JSON: its path (`$.subject`), its label, whether it has lines."""

    path: str
    label: str
    lines: bool = False


class PayloadForm(NamedTuple):
    """The fields of a payload, and a text in it that can be made from one of them."""

    fields: Sequence[FormField]
    note: str  # what an edit of this payload does not change elsewhere
    made: FormField
    source: str  # the path of what it is made from
    make: Callable[[str], str]
    normal: Callable[[str, str], str] = lambda path, text: text  # the form in which a field's text is kept

    def inside(self, place: str) -> PayloadForm:
        """The same fields where their payload stands at a path of another one: `$.payload`."""

        def there(field: FormField) -> FormField:
            return field._replace(path=place + field.path[1:])

        return PayloadForm(
            [there(field) for field in self.fields], self.note, there(self.made), place + self.source[1:], self.make,
            lambda path, text: self.normal(f"${path.removeprefix(place)}", text),
        )  # fmt: skip


class Refusal(Exception):
    """A lever cannot do this now; the text tells the person why."""


Letter = TypeVar("Letter")  # a row of its table, which only the layers above know


class Letters(Generic[Letter]):
    """The dead letters of a source that failed in certain steps, as their flow knows them.

    The source is a stream or the flow itself. `letters` below are at most 500 of these. A copy that somebody has edited
    is a letter with another payload: `judge` and `take_back` get it like any other.
    """

    steps: Collection[str] = ()  # those of these letters; empty: of all that no other object of the source names
    readable: Sequence[str] = ()  # paths in its JSON whose values whoever sees the page may read: `items[].sku`
    named: Sequence[str] = ()  # paths whose names may be read, and whose values only after a reveal
    # Paths that a copy leaves as they are; with a `?` behind it, a missing one stays missing.
    locked: Sequence[str] = ()
    keyed = False  # whether `keys` names any
    shares_queue = False  # whether letters taken back stand in one line with live traffic, which then waits behind them
    patience = timedelta(hours=1)  # how long a requeued letter may be without its effect before somebody should look

    def __init__(self, source: str) -> None:
        self.source = source

    def order_in(self, key: str, topic: str) -> str:
        """The order that a letter of this business key is about, for the log; empty for what is none.

        `topic` is empty where only an item of a replay batch is known.
        """
        return ""

    def judge(self, letters: Sequence[Letter], now: datetime) -> Mapping[UUID, Judgement]:
        """What `take_back` would do with each; nothing is written."""
        raise NotImplementedError(f"{type(self).__name__} judges no letters")

    def take_back(self, letters: Sequence[Letter], now: datetime) -> Mapping[UUID, Effect]:
        """Handle them again, in the caller's transaction; they are locked and open.

        A letter that cannot be taken now is `refused`, with the reason as its evidence. May raise a DatabaseError
        about the data of one of them: the caller then tries parts of them.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no letters back")

    def effect(self, letters: Sequence[Letter], now: datetime) -> Mapping[UUID, Effect]:
        """What became of requeued letters, by keyed looks; `waiting` without proof."""
        return {}

    def requeue_in_words(self, letters: Sequence[Letter]) -> tuple[str, str]:
        """What a requeue of these promises, and the rest of it; empty where the words for all flows fit."""
        return "", ""

    def keys(self, letter: Letter) -> Collection[str]:
        """The idempotency keys that it names: as long as it is not resolved they are kept, however old they are."""
        return ()

    # -- records that are not JSON ---------------------------------------------------------------------
    def opened(self, letter: Letter) -> tuple[bytes, str]:
        """(the JSON of its payload, `Avro, schema 7`) where its topic has a format and it can be opened, else (b"", "")."""
        return b"", ""

    # -- the pace of a replay -------------------------------------------------------------------------
    def awaited(self) -> bool:
        """Whether the effect comes later and goes through something that can be flooded: a replay keeps a window."""
        return False

    def backpressure(self, letters: Sequence[Letter], now: datetime) -> str:
        """Why a replay of these has to wait now, in one line; empty when they can go."""
        return ""

    def blocked_reason(self, letters: Sequence[Letter], now: datetime) -> str:
        """Why these, on their way, get no further, and what helps, in one line; empty where nobody says."""
        return self.backpressure(letters, now)

    def required_workers(self, letters: Sequence[Letter]) -> Mapping[str, Collection[str]]:
        """The workers that bring the effect of these, on their way: commands, each with the channels or streams it is needed for."""
        return {}

    def queue_depth(self, letters: Sequence[Letter], now: datetime) -> str:
        """What these, on their way, stand behind: `867 mails of the channel`; empty where nothing is before them."""
        return ""

    def pace(self) -> float:
        """Letters a second that what awaits their effect takes; 0 where nobody has set a limit."""
        return 0.0

    # -- closed without effect ------------------------------------------------------------------------
    def discard(self, letters: Sequence[Letter], now: datetime) -> Mapping[UUID, Effect]:
        """Close what else belongs to letters that are discarded, in the caller's transaction; they are locked and open.

        A letter that is not in the answer has nothing else; one that is `refused` stays open.
        """
        return {}

    def restore(self, letters: Sequence[Letter], now: datetime) -> Mapping[UUID, Effect]:
        """Open again what `discard` closed besides the letters; one that is `refused` stays discarded."""
        return {}

    # -- edited copies --------------------------------------------------------------------------------
    def why_not_edited(self, letter: Letter) -> str:
        """Why nobody may edit a copy of this letter, in one sentence; empty where somebody may."""
        return "Its flow takes no edited copies."

    def form(self, letter: Letter) -> PayloadForm | None:
        """How its payload is edited without JSON; None where it is not."""
        return None

    def identity(self, letter: Letter) -> str:
        """What its effect is about, from a payload that the gate lets through; empty where `locked` says it all."""
        return ""

    def faults(self, letter: Letter) -> Sequence[str]:
        """What the gate that judges arrivals says against its payload; nothing when it lets it through."""
        return ()
