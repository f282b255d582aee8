"""Scheduled jobs: what beat does around them, and the daily sweep."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache

from axes.models import AccessFailureLog, AccessLog
from celery import current_app
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.utils.module_loading import import_string

from config.database.clock import database_now
from config.database.queries import delete_in_chunks
from config.flows import flows
from config.partitions import Plan, rotate
from config.partitions.rotation import short
from config.telemetry import metrics
from config.telemetry.logs import log

# -- Around the jobs -----------------------------------------------------------------------------------------
# /metrics where they run, and a rotation at once when partitions are about to end.
ROTATION = "outbox.tasks.rotate_partitions"


def rotate_when_short() -> None:
    """Rotate at once when a table's partitions end soon: beat may have been down at every 03:10."""
    try:
        tables = short(database_now())
    except (DatabaseError, InterfaceError) as error:
        log.warning("runway_unknown", error=str(error).strip())
        return
    if tables:
        log.warning("rotation_overdue", runway_days=tables)
        current_app.tasks[ROTATION].delay()


def serve_metrics() -> None:
    """Serve /metrics on CELERY_METRICS_PORT, once per process; a taken port is tried again with the next task."""
    port = settings.CELERY_METRICS_PORT
    try:
        _serve(port)
    except OSError as error:
        log.warning("metrics_not_served", setting="CELERY_METRICS_PORT", port=port, error=error.strerror)


_serve = cache(metrics.serve)


# -- The daily job -------------------------------------------------------------------------------------------
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
