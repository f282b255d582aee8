"""`verify --flow audit`: no operator action was changed or deleted since it was sealed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from config.database.chunks import by_key
from config.database.clock import database_now
from config.flows import Check
from outbox.trail.models import ActionSeal, OperatorAction
from outbox.trail.retention import SWEEP, TRAIL, Swept, days_of, swept
from outbox.trail.seals import GENESIS, HASHED, link, row_hash_of

CHUNK = 1000
OFFENDERS = 20
DAY, RECENT = timedelta(days=1), timedelta(days=2)
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
    yield _every_old_action_is_sealed(database_now())
    yield _floors_rise()
    yield _sweeps_are_as_the_settings_say(database_now())


def _every_old_action_is_sealed(now: datetime) -> Check:
    """Beat seals each minute what it sees, and all of it once a day."""
    old = OperatorAction.objects.unsealed().filter(created_at__lt=now - DAY).order_by("pk")
    rows = [{"action": pk, "acted_at": at.isoformat()} for pk, at in old.values_list("pk", "created_at")[:OFFENDERS]]
    return Check("audit: every action older than a day has its seal", rows=rows)


def _floors_rise() -> Check:
    """The floor, below which no action is looked for each minute, never falls and never passes the sealed actions."""
    wrong = []
    before = highest = 0
    for chunk in by_key(ActionSeal.objects.values_list("number", "action", "floor"), CHUNK):
        for number, action, floor in chunk:
            highest = max(highest, action)
            if floor < before:
                wrong.append({"seal": number, "floor": floor, "before": before})
            before = floor
    if before > highest:
        wrong.append({"floor": before, "highest sealed action": highest})
    return Check("audit: the floor of every seal fits", rows=wrong[:OFFENDERS])


def _sweeps_are_as_the_settings_say(now: datetime) -> Check:
    """A sweep says which actions may be gone. One that retention did not write, or with other days, shows for two days."""
    days = settings.AUDIT_RETENTION_DAYS
    recent = OperatorAction.objects.filter(verb=SWEEP, subject_type=TRAIL, created_at__gt=now - RECENT)
    told = recent.newest_first().values_list("pk", "detail", "created_at")
    rows = [
        {"action": pk, "says": detail} for pk, detail, at in told if days_of(detail) != days or at > now or not days
    ]
    return Check("audit: retention swept as AUDIT_RETENTION_DAYS says", rows=rows[:OFFENDERS])


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
