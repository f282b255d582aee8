"""The daily job: rotate partitions, and sweep rows past their retention that stand in no partition."""

from __future__ import annotations

from datetime import datetime, timedelta

from axes.models import AccessFailureLog, AccessLog
from django.conf import settings
from django.utils.module_loading import import_string

from config.database.chunks import delete_in_chunks
from config.database.clock import database_now
from config.flows import flows
from config.partitions import Plan, rotate


def rotate_and_sweep(*, dry_run: bool = False, no_drop: bool = False) -> tuple[list[Plan], int]:
    """Rotate every partitioned table, then let each flow and SWEEPS sweep; returns the plans and how many rows went."""
    plans = rotate(dry_run, no_drop)
    if dry_run or no_drop:
        return plans, 0
    now = database_now()
    sweeps = [*(flow.sweep for flow in flows()), *map(import_string, settings.SWEEPS)]
    return plans, sum(sweep(now) for sweep in sweeps)


def sweep_logins(now: datetime) -> int:
    """Delete logins and failed logins older than LOGIN_RETENTION_DAYS; returns how many."""
    oldest = now - timedelta(days=settings.LOGIN_RETENTION_DAYS)
    return sum(
        delete_in_chunks(model.objects.filter(attempt_time__lt=oldest)) for model in (AccessLog, AccessFailureLog)
    )
