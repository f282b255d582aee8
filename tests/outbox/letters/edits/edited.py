"""What the tests of edited copies ask of one letter."""

from __future__ import annotations

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.letters.edits import examine, requeue_copy, text_of
from outbox.letters.models import DeadLetter

ANN = Operator("ann")
REASON = "The supplier confirmed 12"


def only() -> DeadLetter:
    return DeadLetter.objects.get()


def again(letter: DeadLetter) -> DeadLetter:
    return DeadLetter.objects.get(pk=letter.pk)


def edited(letter: DeadLetter, *changes: tuple[str, str]) -> str:
    text = text_of(letter)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def send(letter: DeadLetter, text: str, seen: int = 0) -> str:
    return requeue_copy(letter.pk, text, seen, ANN, REASON).state


def faults(letter: DeadLetter, text: str) -> list[tuple[str, int | None]]:
    return [(fault.path, fault.line) for fault in examine(letter, text, database_now()).faults]


def verdict(letter: DeadLetter, text: str) -> str:
    judgement = examine(letter, text, database_now()).judgement
    return judgement.verdict if judgement else ""
