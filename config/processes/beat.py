"""Around the scheduled jobs: /metrics where they run, and a rotation at once when partitions are about to end."""

from __future__ import annotations

from functools import cache

from celery import current_app
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from config.database.clock import database_now
from config.partitions.runway import short
from config.telemetry import metrics
from config.telemetry.logs import log

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
