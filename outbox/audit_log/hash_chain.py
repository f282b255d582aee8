"""Seals: a hash chain over the operator actions, made after the acts, so that no act waits for another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from django.db import IntegrityError, OperationalError, transaction

from config.database.retry import Remedy, is_duplicate, remedy_for
from config.telemetry.logs import log_committed
from outbox.audit_log.models import ActionSeal, OperatorAction

GENESIS = "0" * 64  # the hash before the first seal
# A key that is missing for so long belongs to a transaction that was rolled back. An action that commits even later is
# sealed by the daily round, which looks at all of them.
LATEST = timedelta(minutes=15)
SEALED_AT_ONCE = 2000
HASHED = (
    "pk", "actor_number", "actor_name", "verb", "subject", "subject_type", "subject_id", "url", "reason", "result",
    "rows", "detail", "before", "after", "created_at",
)  # fmt: skip


def row_hash_of(row: Sequence[object]) -> str:
    """The digest of an action's columns, in the order of HASHED."""
    text = json.dumps(row, default=_as_text, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _as_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def link(before: str, number: int, action: int, row_hash: str, acted_at: datetime) -> str:
    """The hash of a seal, over its columns and the hash of the seal before it."""
    return hashlib.sha256(f"{before}:{number}:{action}:{row_hash}:{_as_text(acted_at)}".encode()).hexdigest()


def head() -> ActionSeal:
    """The last seal; before the first one a seal of number 0 that is not stored."""
    return ActionSeal.objects.order_by("-number").first() or ActionSeal(number=0, action=0, hash=GENESIS, floor=0)


def seal(now: datetime, limit: int = SEALED_AT_ONCE, *, thorough: bool = False) -> int:
    """Seal up to `limit` actions that have none, by rising key; returns how many.

    Two sealers read the same head, and their first seals have the same number: the database takes one of them, and
    the other has sealed nothing. `thorough` looks for actions below the floor, too, which came very late.
    """
    try:
        with transaction.atomic():
            return _seal(now, limit, thorough)
    except (IntegrityError, OperationalError) as error:
        if not is_duplicate(error) and remedy_for(error) is not Remedy.RERUN:
            raise
        return 0  # another sealer was faster


def _seal(now: datetime, limit: int, thorough: bool) -> int:
    last = head()
    unsealed = OperatorAction.objects.unsealed(0 if thorough else last.floor).order_by("pk")
    rows = list(unsealed.values_list(*HASHED)[:limit])
    if not rows:
        return 0
    floor = _floor(last.floor, [row[0] for row in rows], now, complete=len(rows) < limit)
    before, seals = last.hash, []
    for number, row in zip(count(last.number + 1), rows, strict=False):
        row_hash = row_hash_of(row)
        columns: dict[str, Any] = {"number": number, "action": row[0], "row_hash": row_hash, "acted_at": row[-1]}
        before = link(before, **columns)
        seals.append(ActionSeal(**columns, hash=before, floor=floor))
    ActionSeal.objects.bulk_create(seals, batch_size=500)
    # A copy of the head that nobody with rights on the database can change.
    log_committed("actions_sealed", actions=len(seals), number=seals[-1].number, hash=before)
    return len(seals)


def _floor(floor: int, new: Collection[int], now: datetime, *, complete: bool) -> int:
    """Up to which key every action is sealed or will never come.

    Keys are given in the order of the inserts, actions are seen in the order of their commits: the floor stays below
    a missing key until no transaction can be that old.
    """
    if complete:
        old = OperatorAction.objects.filter(created_at__lt=now - LATEST).order_by("-created_at")
        floor = max(floor, old.values_list("pk", flat=True).first() or 0)
    sealed = {*new, *ActionSeal.objects.filter(action__gt=floor).values_list("action", flat=True)}
    while floor + 1 in sealed:
        floor += 1
    return floor


def unsealed_since() -> datetime | None:
    """When the oldest action was recorded that has no seal yet; None when there is none."""
    rows = OperatorAction.objects.unsealed(head().floor).order_by("pk")
    return rows.values_list("created_at", flat=True).first()
