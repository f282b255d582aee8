"""Days until each table's last partition ends: shown on home when few are left, and a gauge for an alert."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from django.urls import reverse

from config.flows import Need, Reading
from config.partitions import configured, runway_days
from config.telemetry import metrics

SOON_DAYS, NOW_DAYS = 1, 2 / 24
PERIOD_DAYS = {"month": 31, "day": 1}


@lru_cache(maxsize=1)
def _runways(minute: int) -> dict[str, float]:
    return {spec.resolve()._meta.db_table: runway_days(spec) for spec in configured()}


def runways(now: datetime) -> dict[str, float]:
    """Days by table. The catalogue is asked once a minute: home is refreshed far more often."""
    return _runways(int(now.timestamp() // 60))


def short(now: datetime) -> dict[str, float]:
    """Days by table, where less than a third is left of what the daily rotation keeps ahead."""
    kept = kept_ahead()
    return {table: days for table, days in runways(now).items() if days < kept[table] / 3}


def kept_ahead() -> dict[str, int]:
    """About how many days ahead, by table, partitions exist right after a rotation."""
    return {spec.resolve()._meta.db_table: spec.ahead * PERIOD_DAYS[spec.period] for spec in configured()}


def needs(now: datetime) -> Iterator[Need]:
    """Tables whose last partition ends soon."""
    for table, days in short(now).items():
        yield Need(
            urgency="now" if days < NOW_DAYS else "soon" if days < SOON_DAYS else "watch",
            title=f"Partitions of {table} end in {days:.0f} days" if days else f"{table} has no partition for now",
            why="rotate_partitions has not run for long. Inserts fail after the last partition.",
            url=reverse("admin:partitions"),
            lever="Show plan…",
            amount=int(days),
            unit="days left",
            until=now + timedelta(days=days),
            rank=0,
        )


def gauges(now: datetime) -> Iterator[Reading]:
    kept = kept_ahead()
    for table, days in runways(now).items():
        yield Reading(metrics.PARTITION_RUNWAY, days, {"table": table})
        yield Reading(metrics.PARTITION_AHEAD, kept.get(table, 0), {"table": table})
