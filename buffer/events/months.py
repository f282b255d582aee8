"""Which months the buffer keeps: orders outside of them are dead letters, never an error loop."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

AHEAD = 3


def retained_months(now: datetime) -> tuple[int, int]:
    """The first and the last month (yyyymm) that the buffer keeps."""
    return add_months(now, -settings.BUFFER_RETENTION_MONTHS), add_months(now, AHEAD)


def add_months(now: datetime, months: int) -> int:
    """The month `months` away from `now`, as yyyymm."""
    year, month = divmod(now.year * 12 + now.month - 1 + months, 12)
    return year * 100 + month + 1
