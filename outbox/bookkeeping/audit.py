"""The operator's trail: each lever inserts a row, in the transaction of its effect."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from config.admin.levers import Operator
from config.database.chunks import delete_in_chunks
from config.database.clock import database_now
from outbox.bookkeeping.models import OperatorAction


def may_see_payloads(request: HttpRequest) -> bool:
    return bool(request.user.has_perm("outbox.view_payload"))


def record(
    operator: Operator,
    verb: str,
    subject: str,
    *,
    reason: str,
    result: str = "done",
    rows: int = 1,
    url: str = "",
    detail: dict[str, Any] | None = None,
) -> OperatorAction:
    """Insert an operator action; call it in the transaction of the effect."""
    return OperatorAction.objects.create(
        actor=operator.user,
        actor_name=operator.name[:150],
        verb=verb,
        subject=subject[:300],
        reason=reason,
        result=result[:200],
        rows=rows,
        url=url,
        detail=detail or {},
        created_at=database_now(),
    )


def sweep(now: datetime) -> int:
    """Delete deeds older than AUDIT_RETENTION_DAYS (0 keeps them for ever); returns how many."""
    if not settings.AUDIT_RETENTION_DAYS:
        return 0
    old = OperatorAction.objects.filter(created_at__lt=now - timedelta(days=settings.AUDIT_RETENTION_DAYS))
    return delete_in_chunks(old)
