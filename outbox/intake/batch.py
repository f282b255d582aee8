"""A polled batch of promises: decoded, and each compared with the message that its key was first used for. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from outbox.intake.envelope import Promise
from outbox.letters.burial import Letter, Place, RecordOutcomes

FILLED_IN = object()  # in place of a value that the service did not give
CONFLICT = "the key was used for another message: its {} differs"


@dataclass
class Prepared:
    """A decoded batch: promises in the order of their offsets, and what was refused."""

    promises: list[Promise] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    read: Counter[Place] = field(default_factory=Counter)
    outside: Counter[Place] = field(default_factory=Counter)  # of a replay: older than keys are kept


class StoredMessage(NamedTuple):
    """The message that a key stands for, as far as it is still there."""

    channel: str
    event_type: str
    aggregate: str
    text: str


def difference(promise: Promise, stored: StoredMessage | None) -> str:
    """What of a promise is not as the message that its key was first used for says; empty for a repeat.

    Fields that the service left out, and the channel filled in, may have been filled in differently then.
    """
    if stored is None:  # retention took it
        return "payload"
    for name in ("channel", "event_type", "aggregate"):
        if getattr(promise, name) != getattr(stored, name):
            return name
    if promise.text == stored.text:
        return ""
    before, now = msgspec.json.decode(stored.text), msgspec.json.decode(promise.text)
    unlike = sorted(
        name
        for name in before.keys() | now.keys()
        if not _says_the_same(promise.given.get(name, FILLED_IN), now.get(name), before.get(name))
    )
    return f"payload ({unlike[0]})" if unlike else ""


def _says_the_same(given: Any, now: Any, before: Any) -> bool:
    """Whether what a service gave, which is now stored as `now`, stands in `before`; what was filled in may differ."""
    if isinstance(given, dict) and isinstance(now, dict) and isinstance(before, dict):
        return now.keys() == before.keys() and all(
            _says_the_same(given.get(name, FILLED_IN), now[name], before[name]) for name in now
        )
    if given is FILLED_IN:
        return now is not None and before is not None
    return bool(now == before)


@dataclass
class Taken(RecordOutcomes):
    """What a batch of promises became."""

    REPEATED = "repeated"

    stored: dict[int, Any] = field(default_factory=dict)  # id of the record → of its message
    repeats: dict[int, Any] = field(default_factory=dict)  # the same of records that were known
