"""Retention of the trail: actions go, seals stay, and the trail itself says up to which seal they went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from config.admin.levers import Operator
from config.database.chunks import batched, by_key
from config.database.clock import database_now
from outbox.trail.audit import record
from outbox.trail.models import ActionSeal, ActionSubject, OperatorAction
from outbox.trail.seals import CHUNK, seal

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
    return sum(_delete(chunk) for chunk in batched(actions, CHUNK))


def seal_all(now: datetime) -> None:
    while seal(now, CHUNK, thorough=True) == CHUNK:
        pass


def swept() -> Swept:
    """What the newest sealed sweep says; an unsealed one may be by whoever deleted actions just now."""
    sealed = Exists(ActionSeal.objects.filter(action=OuterRef("pk")))
    sweeps = OperatorAction.objects.filter(sealed, verb=SWEEP, subject_type=TRAIL).newest_first()
    found = sweeps.values_list("detail", "created_at").first()
    if not found or not days_of(found[0]):
        return Swept()
    # Not of a time to come, which would cover what is done until then.
    return Swept(int(found[0]["upto"]), min(found[1], database_now()) - timedelta(days=days_of(found[0])))


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
    for chunk in by_key(ActionSeal.objects.filter(number__gt=since).values_list("number", "acted_at"), CHUNK):
        for number, acted_at in chunk:
            if acted_at >= oldest:
                return last
            last = number
    return last
