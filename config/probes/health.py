"""/healthz (keep this process?) and /readyz (send it traffic?)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers. Nothing else is asked: a dead database is no reason to restart it."""
    return JsonResponse({"process": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """One line per check; 503 when one fails.

    Stopped partitions are not among them: an operator needs the admin to start them again. They are on home and
    in `spillway_partition_stopped`.
    """
    lines = {name: _verdict(check) for name, check in CHECKS.items()}
    return JsonResponse(lines, status=200 if set(lines.values()) == {"ok"} else 503)


def _verdict(check: Callable[[], str]) -> str:
    try:
        return check() or "ok"
    except (DatabaseError, InterfaceError) as error:
        # Only the class: texts of drivers name hosts and users, and this page asks for no password.
        return f"failed: {type(error).__name__}"


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()
    return ""


def _migrations() -> str:
    # Reading them all takes a tenth of a second: too much for a probe that comes every few seconds.
    missing = _missing(int(time.monotonic() // 60))
    return f"failed: {missing} not applied, run migrate" if missing else ""


@lru_cache(maxsize=1)
def _missing(minute: int) -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


CHECKS = {"database": _database, "migrations": _migrations}
