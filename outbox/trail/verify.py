"""`verify --flow audit`: no operator action was changed or deleted since it was sealed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from config.database.chunks import by_key
from config.flows import Check
from outbox.trail.models import ActionSeal, OperatorAction
from outbox.trail.retention import Swept, swept
from outbox.trail.seals import GENESIS, HASHED, link, row_hash_of

CHUNK = 1000
OFFENDERS = 20
SEAL = ("number", "action", "row_hash", "acted_at", "hash")
Fault = dict[str, Any]


def checks() -> Iterator[Check]:
    """The chain from its first seal to its last, and each action that it names."""
    before, expected, numbers = GENESIS, 0, 0
    broken: list[Fault] = []
    wrong: list[Fault] = []
    for chunk in by_key(ActionSeal.objects.values_list(*SEAL), CHUNK):
        for number, action, row_hash, acted_at, stored in chunk:
            if number != expected + 1:
                broken.append({"seal": expected + 1, "why": f"gone, up to seal {number - 1}"})
            elif stored != link(before, number, action, row_hash, acted_at):
                broken.append({"seal": number, "action": action, "why": "the seal was changed"})
            expected, before = number, stored
        numbers += len(chunk)
        wrong += _wrong_actions(chunk)
    # Read last: what retention has deleted meanwhile it announced before.
    kept = swept()
    gone = [fault for fault in wrong if not _swept(fault, kept)]
    yield Check("audit: the chain of seals is whole", expected, numbers, broken[:OFFENDERS])
    yield Check("audit: every sealed action is as it was", rows=[_named(fault) for fault in gone[:OFFENDERS]])


def _wrong_actions(chunk: list[tuple[Any, ...]]) -> Iterator[Fault]:
    rows = OperatorAction.objects.filter(pk__in=[seal[1] for seal in chunk]).values_list(*HASHED)
    found = {row[0]: row for row in rows}
    for number, action, row_hash, acted_at, _ in chunk:
        row = found.get(action)
        if row is None:
            yield {"seal": number, "action": action, "why": "deleted", "acted_at": acted_at}
        elif row_hash_of(row) != row_hash:
            yield {"seal": number, "action": action, "why": "changed", "acted_at": acted_at}


def _swept(fault: Fault, kept: Swept) -> bool:
    return fault["why"] == "deleted" and kept.covers(fault["seal"], fault["acted_at"])


def _named(fault: Fault) -> Fault:
    acted_at: datetime = fault["acted_at"]
    return fault | {"acted_at": acted_at.isoformat()}
