"""Calendar arithmetic of partitions: months and days in UTC, without a clock and without a locale."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal

Period = Literal["month", "day"]


def start_of(period: Period, day: date) -> date:
    """The first day of the period that `day` falls into."""
    return day.replace(day=1) if period == "month" else day


def shift(period: Period, start: date, count: int) -> date:
    """The start of the period `count` after the one that begins at `start`; negative counts go back."""
    if period == "day":
        return start + timedelta(days=count)
    year, month = divmod(start.year * 12 + start.month - 1 + count, 12)
    return date(year, month + 1, 1)


def label_of(period: Period, start: date) -> str:
    """`202611` for a month, `20261121` for a day: sorts as the dates do."""
    return f"{start.year:04}{start.month:02}" + (f"{start.day:02}" if period == "day" else "")
