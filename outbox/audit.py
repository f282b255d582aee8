"""The operator's trail: every lever writes one row, in the transaction of what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from config.clock import database_now
from outbox.models import OperatorAction


@dataclass(frozen=True)
class Operator:
    """Whoever pulls a lever: a person in the admin, or a command and the account that ran it."""

    name: str
    user: User | None = None


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
    """Write down one deed; call it inside the transaction that does it."""
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
