"""Moments as the throttler computes with them: whole microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def moment_of(us: int) -> datetime:
    return EPOCH + us * MICROSECOND


def day_of(us: int) -> date:
    return moment_of(us).date()
