"""The console's hands: who pulls a lever, what a key may mean, and the levers on dead letters."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from config import words
from config.flows import Refusal
from config.levers import Lever, Outcome
from outbox import dead_letters
from outbox.audit import Operator
from outbox.models import DeadLetter


def operator_of(user: Any) -> Operator:
    """The person at the lever, by the name that the trail will keep."""
    return Operator(user.get_full_name() or user.get_username(), user)


def may_see_payloads(request: HttpRequest) -> bool:
    return bool(request.user.has_perm("outbox.view_payload"))


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _each(close: Callable[..., int]) -> Callable[[list[Any], Any, str], Outcome]:
    """Letter by letter: one that refuses must not hide what became of the others."""

    def act(keys: list[Any], user: Any, reason: str) -> Outcome:
        changed, refused = 0, []
        for key in keys:
            try:
                changed += close([key], operator_of(user), reason)
            except Refusal as refusal:
                refused.append(f"{str(refusal).capitalize()}.")
        return Outcome(changed, refused)

    return act


def _requeue(keys: list[Any], user: Any, reason: str) -> Outcome:
    result = dead_letters.requeue(keys, operator_of(user), reason)
    return Outcome(result.requeued, [f"{letter}: {why}." for letter, why in result.refused])


def _why_closed(letter: DeadLetter) -> str:
    age = words.ago(letter.updated_at, timezone.now())
    return (
        f"Already {letter.status} {age}: {letter.note}." if letter.note else f"Already {letter.status} {age}."
    )


LETTERS: dict[str, Any] = {
    "nouns": ("letter", "letters"),
    "ready": lambda rows: rows.open(),
    "why_not": _why_closed,
}
REQUEUE = Lever(
    name="requeue", verb="Requeue", past="Requeued", icon="redo",
    right="requeue_deadletter", keep="Not now",
    promise="Each goes back through the door it came in by.",
    detail="It is handled again at its original place, so it never overwrites newer data. "
    "When it fails again, a new letter says why.",
    act=_requeue, **LETTERS,
)  # fmt: skip
RESOLVE = Lever(
    name="resolve", verb="Resolve", past="Resolved", icon="tick",
    right="resolve_deadletter", keep="Leave open",
    promise="Nothing is sent.",
    detail="Resolved letters were dealt with elsewhere. They leave the open count and stay in search.",
    act=_each(dead_letters.resolve), **LETTERS,
)  # fmt: skip
DISCARD = Lever(
    name="discard", verb="Discard", past="Discarded", icon="ban",
    right="discard_deadletter", keep="Keep them",
    promise="What they carry will never take effect.",
    detail="Discarded letters are marked, not deleted. They leave the open count and stay in search. "
    "A refused batch is discarded with its orders.",
    act=_each(dead_letters.discard), harm=True, least=10, **LETTERS,
)  # fmt: skip
