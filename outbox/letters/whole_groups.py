"""Levers on all open letters of a group at once, as far as one request may carry them."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import Refusal
from outbox.groups.models import FailureGroup
from outbox.letters import closing
from outbox.letters.models import DeadLetter
from outbox.trail import audit

MOST = 500  # letters of one transaction; more are a replay batch


def resolve_groups(ids: Iterable[int], operator: Operator, reason: str) -> int:
    """Mark the open letters of groups as dealt with elsewhere; returns how many groups had any.

    Raises Refusal at a group with more than MOST; those before it stay resolved.
    """
    return sum(_resolve_one(pk, operator, reason) for pk in sorted(ids))


def _resolve_one(pk: int, operator: Operator, reason: str) -> int:
    with transaction.atomic():
        ids = DeadLetter.objects.of_group(pk).open().newest_first().values_list("pk", flat=True)
        found = list(ids[: MOST + 1])
        if len(found) > MOST:
            raise Refusal(f"it has more than {MOST} open letters: resolve them by a replay batch")
        letters = list(DeadLetter.objects.filter(pk__in=found).defer("payload", "traceback", "headers"))
        moved = len(closing.resolve(letters, database_now()))
        if not moved:
            return 0
        group = FailureGroup.objects.get(pk=pk)
        audit.record(
            operator, "resolve", f"Group {group}", reason=reason, result="resolved", rows=moved, url=group.url,
            detail={"group": pk, "letters": moved}, subject_type="outbox.failuregroup", subject_id=pk,
        )  # fmt: skip
    return 1
