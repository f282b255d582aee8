"""The audit log as the rest of Spillway sees it: its invariants, its gauge, its retention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.queries import batched, by_key
from config.flows import Check, Flow, Reading
from config.telemetry import metrics
from outbox.audit_log.actions import record
from outbox.audit_log.hash_chain import GENESIS, HASHED, SEALED_AT_ONCE, link, row_hash_of, seal, unsealed_since
from outbox.audit_log.models import ActionSeal, ActionSubject, OperatorAction

# -- Retention of the trail: actions go, seals stay, and the trail itself says up to which seal they went ----
LONGEST_DAYS = 100_000  # a time of Python lies no further back
SWEEP, TRAIL = "sweep_actions", "outbox.operatoraction"


@dataclass(frozen=True)
class Swept:
    """What retention may have deleted: actions up to this seal that were recorded before this time."""

    upto: int = 0
    before: datetime | None = None

    def covers(self, number: int, acted_at: datetime) -> bool:
        return number <= self.upto and self.before is not None and acted_at < self.before


def sweep(now: datetime) -> int:
    """Delete actions older than AUDIT_RETENTION_DAYS (0 keeps them for ever); returns how many.

    Only sealed ones go, and only from the beginning of the chain, so that one number says which may be missing.
    """
    seal_all(now)
    if not settings.AUDIT_RETENTION_DAYS:
        return 0
    upto = _last_old(swept().upto, now - timedelta(days=settings.AUDIT_RETENTION_DAYS))
    if upto > swept().upto:
        _announce(upto)
        seal_all(now)  # before anything is gone: `verify` believes sealed actions only
    there = Exists(OperatorAction.objects.filter(pk=OuterRef("action")))
    actions = list(ActionSeal.objects.filter(there, number__lte=swept().upto).values_list("action", flat=True))
    return sum(_delete(chunk) for chunk in batched(actions, SEALED_AT_ONCE))


def seal_all(now: datetime) -> None:
    while seal(now, SEALED_AT_ONCE, thorough=True) == SEALED_AT_ONCE:
        pass


def swept() -> Swept:
    """What the newest sealed sweep says; an unsealed one may be by whoever deleted actions just now."""
    sealed = Exists(ActionSeal.objects.filter(action=OuterRef("pk")))
    sweeps = OperatorAction.objects.filter(sealed, verb=SWEEP, subject_type=TRAIL).newest_first()
    newest = sweeps.values_list("detail", "created_at").first()
    if not newest or not days_of(newest[0]):
        return Swept()
    # Not of a time to come, which would cover what is done until then.
    return Swept(int(newest[0]["upto"]), min(newest[1], database_now()) - timedelta(days=days_of(newest[0])))


def days_of(detail: Any) -> int:
    """For how long a sweep says that actions were kept: at least a day. 0 for what no sweep says."""
    wanted = isinstance(detail, dict) and all(type(detail.get(name)) is int for name in ("upto", "days"))
    return max(0, min(detail["days"], LONGEST_DAYS)) if wanted else 0


def _announce(upto: int) -> None:
    days = settings.AUDIT_RETENTION_DAYS
    subject = f"Operator actions up to seal {upto}"
    detail = {"upto": upto, "days": days}
    with transaction.atomic():
        record(Operator("retention"), SWEEP, subject, reason=f"AUDIT_RETENTION_DAYS={days}", rows=0, detail=detail,
               subject_type=TRAIL)  # fmt: skip


def _delete(actions: Sequence[int]) -> int:
    with transaction.atomic():
        ActionSubject.objects.filter(action__in=actions).delete()
        return OperatorAction.objects.filter(pk__in=actions).delete()[0]


def _last_old(since: int, oldest: datetime) -> int:
    """The number of the last seal before the first one whose action is not older than `oldest`."""
    last = since
    for chunk in by_key(ActionSeal.objects.filter(number__gt=since).values_list("number", "acted_at"), SEALED_AT_ONCE):
        for number, acted_at in chunk:
            if acted_at >= oldest:
                return last
            last = number
    return last


# -- `verify --flow audit`: no operator action was changed or deleted since it was sealed --------------------
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
    gone = [fault for fault in wrong if fault["why"] != "deleted" or not kept.covers(fault["seal"], fault["acted_at"])]
    yield Check("audit: the chain of seals is whole", expected, numbers, broken[:OFFENDERS])
    yield Check(
        "audit: every sealed action is as it was",
        rows=[fault | {"acted_at": fault["acted_at"].isoformat()} for fault in gone[:OFFENDERS]],
    )
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
    sweeps = recent.newest_first().values_list("pk", "detail", "created_at")
    rows = [
        {"action": pk, "says": detail} for pk, detail, at in sweeps if days_of(detail) != days or at > now or not days
    ]
    return Check("audit: retention swept as AUDIT_RETENTION_DAYS says", rows=rows[:OFFENDERS])


def _wrong_actions(chunk: list[tuple[object, ...]]) -> Iterator[Fault]:
    rows = OperatorAction.objects.filter(pk__in=[seal[1] for seal in chunk]).values_list(*HASHED)
    by_action = {row[0]: row for row in rows}
    for number, action, row_hash, acted_at, _ in chunk:
        row = by_action.get(action)
        if row is None:
            yield {"seal": number, "action": action, "why": "deleted", "acted_at": acted_at}
        elif row_hash_of(row) != row_hash:
            yield {"seal": number, "action": action, "why": "changed", "acted_at": acted_at}


# -- The trail as the rest of Spillway sees it: its invariants, its gauge, its retention ---------------------
class Audit(Flow):
    """Operator actions and the chain over them."""

    name = "audit"

    def gauges(self, now: datetime) -> Iterator[Reading]:
        since = unsealed_since()
        yield Reading(metrics.AUDIT_UNSEALED, max(0.0, (now - since).total_seconds()) if since else 0.0)

    def verify_payloads(self) -> Iterator[Check]:
        return checks()

    def sweep(self, now: datetime) -> int:
        return sweep(now)
