"""What the forms of a replay batch send: the filter of a draft, the pace of a confirmation, the levers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from config.admin import humanize
from config.admin.levers import Operator
from config.admin.roles import ROLES
from config.flows import Refusal
from outbox.letters.filters import VERBS, Filter
from outbox.replay.batches import requests

RIGHT = "bulk requeue"
RIGHTS = {verb: ("outbox.bulk_replay", f"outbox.{verb}_deadletter") for verb in VERBS}
Given = Mapping[str, Any]


def may(user: Any, verb: str) -> bool:
    """Whether this person may do it to one letter, and to many."""
    return bool(user.has_perms(RIGHTS[verb]))


def lacking(user: Any, verb: str) -> str:
    """The first right that this person lacks for it, in words; empty where none is."""
    bulk, one = RIGHTS[verb]
    if not user.has_perm(bulk):
        return RIGHT
    return "" if user.has_perm(one) else f"{verb} dead letters"


def role_for(verb: str) -> str:
    """The least role that may do it to many letters."""
    return next((role for role, rights in ROLES.items() if set(RIGHTS[verb]) <= set(rights)), "")


def posted_filter(given: Any) -> Filter:
    """The filter of a draft. Raises Refusal for a group that is no number."""
    group = _text(given, "group")
    if group and not (group.isdecimal() and len(group) < 19):
        raise Refusal(f"{group[:50]}: not the number of a failure group")
    texts = {name: _text(given, name) for name in ("source", "status", "before")}
    return Filter(
        ids=tuple(given.getlist("ids")), group=int(group) if group else None, all=given.get("all") == "1", **texts
    )


def _confirm(number: int, operator: Operator, given: Given) -> str:
    rate, canary = _number(given, "rate", float), _number(given, "canary", int)
    typed, code = _text(given, "typed"), _text(given, "code")[:30]
    batch = requests.confirm(number, operator, _text(given, "reason"), typed=typed, code=code, rate=rate, canary=canary)
    return f"{humanize.plural(batch.eligible, 'letter waits', 'letters wait')} for the end of the hold. Nothing has left yet."


def _rate(number: int, operator: Operator, given: Given) -> str:
    batch = requests.set_rate(number, operator, _number(given, "rate", float))
    return f"The rate is {batch.rate:g} letters a second." if batch.rate else "The rate is unlimited."


def _plain(act: Callable[..., Any], words: str) -> Callable[[int, Operator, Given], str]:
    def pull(number: int, operator: Operator, given: Given) -> str:
        act(number, operator, _text(given, "reason"))
        return words

    return pull


def _text(given: Given, name: str) -> str:
    """What was typed, without what no database keeps in a text."""
    return str(given.get(name, "")).strip()


def _number(given: Given, name: str, kind: Callable[[str], Any]) -> Any:
    """None for an empty field. Raises Refusal."""
    text = _text(given, name).replace(",", "")
    try:
        return kind(text) if text else None
    except (ValueError, OverflowError):
        raise Refusal(f"{name} {text[:50]!r} is no number") from None


DEEDS: Mapping[str, Callable[[int, Operator, Given], str]] = {
    "confirm": _confirm,
    "rate": _rate,
    "undo": _plain(requests.undo, "Undone. No letter was touched, and the preview is kept."),
    "start": _plain(requests.start_now, "The hold is over."),
    "pause": _plain(requests.pause, "Paused. The chunk in hand was finished."),
    "resume": _plain(requests.resume, "It goes on."),
    "cancel": _plain(requests.cancel, "Cancelled. What was not acted on stays as it is."),
}
