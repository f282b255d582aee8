"""An edited copy: whether there can be one, and what the flow's gate and judgement say of it. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.text import capfirst

from config.admin.payload import TOKEN, indented, is_json
from config.flows import Judgement, Refusal, flow_of
from outbox.edits.difference import DiffLine, difference
from outbox.edits.faults import Fault, in_order, located, locked_faults, locked_values, repeated_faults
from outbox.letters import proof
from outbox.letters.burial import STOPPED
from outbox.letters.models import DeadLetter, PayloadRevision

MOST = 65_536  # bytes in a form
PLAIN = {"\n", "\t", "\r"}  # characters that a form keeps although nobody sees them
SAME = "The copy says what the letter says. Requeue the letter instead."
ANOTHER = "It is about {}; the letter is about {}. What identifies the effect is locked."


@dataclass(frozen=True)
class Examined:
    """What is to be known of a copy before it is requeued."""

    faults: Sequence[Fault]
    difference: Sequence[DiffLine]
    judgement: Judgement | None = None  # of a copy without faults

    @property
    def may_go(self) -> bool:
        return not self.faults and self.judgement is not None and self.judgement.eligible


def why_not(letter: DeadLetter) -> str:
    """Why no copy of this letter can be edited, whatever its state; empty when one can."""
    if letter.step == STOPPED:
        return "It stands for a stopped partition, not for a record."
    if letter.is_excerpt:
        return "Only parts of its payload are kept."
    if not letter.payload:
        return "It has no payload."
    if len(letter.payload) > MOST:
        return f"It has {len(letter.payload):,} bytes; a form takes {MOST:,}."
    try:
        return _why_no_text(bytes(letter.payload)) or flow_of(letter.source).why_not_edited(letter)
    except Refusal as refusal:
        return f"{capfirst(str(refusal))}."


def _why_no_text(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "Its payload is no text."
    hidden = any(not char.isprintable() and char not in PLAIN and char.isascii() for char in text)
    return "Its payload holds control characters, which a form does not keep." if hidden else ""


def text_of(letter: DeadLetter) -> str:
    """The payload as the form shows it: JSON is indented, and nothing else is changed."""
    text = bytes(letter.payload or b"").decode("utf-8", "backslashreplace")
    return indented(text) if is_json(text) else text


def typed(text: str) -> str:
    """What came from a form, with the line ends that it had before."""
    return text.replace("\r\n", "\n").replace("\x00", "")


def bytes_of(text: str) -> bytes:
    """What is sent: JSON without the spaces between its values, as it usually arrives; all else as it was typed."""
    return ("".join(TOKEN.findall(text)) if is_json(text) else text).encode("utf-8", "surrogatepass")


def copy_of(letter: DeadLetter, text: str) -> DeadLetter:
    """The letter with the edited payload."""
    return letter.copy_with(bytes_of(text), PayloadRevision.objects.last_number(letter.pk) + 1)


def what_is_locked(letter: DeadLetter) -> Mapping[str, str | None]:
    """What of its payload a copy has to repeat, by path. Where its own gate finds a value wrong, that one is free."""
    text = text_of(letter)
    flow = flow_of(letter.source)
    wrong = {located(error, text).path for error in flow.faults(letter)}
    return locked_values(text, flow.locked(letter), wrong)


def examine(letter: DeadLetter, text: str, now: datetime) -> Examined:
    """What the gate, the locks and the flow's judgement say of `text` in place of the letter's payload."""
    copy = copy_of(letter, text)
    size = len(copy.payload or b"")
    if size > MOST:
        return Examined([Fault(f"It has {size:,} bytes; a form takes {MOST:,}.")], ())
    lines = difference(text_of(letter), indented(text) if is_json(text) else text)
    gate = [located(error, text) for error in flow_of(copy.source).faults(copy)]
    faults = in_order([*gate, *locked_faults(text, dict(what_is_locked(letter))), *repeated_faults(text)])
    if not faults:
        faults = [*_about_another(letter, copy), *([] if lines else [Fault(SAME)])]
    return Examined(faults, lines, None if faults else proof.judge([copy], now)[copy.pk])


def _about_another(letter: DeadLetter, copy: DeadLetter) -> list[Fault]:
    """For a letter that its gate lets through: it failed later, and it is known what it is about."""
    flow = flow_of(letter.source)
    was, now = ("", "") if flow.faults(letter) else (flow.identity(letter), flow.identity(copy))
    return [Fault(ANOTHER.format(now, was))] if was != now else []
