"""The encodings of a day in a partition column: month number, date, or the time in a UUIDv7."""

from __future__ import annotations

import uuid
from datetime import date, timedelta
from typing import Literal

from config.uuid7 import smallest_uuid7

Encoding = Literal["yyyymm", "date", "uuid7"]
Value = int | date | uuid.UUID

EPOCH = date(1970, 1, 1)
DAY_MS = 86_400_000


def value_of(encoding: Encoding, day: date) -> Value:
    """The smallest column value of that day (of its month, for `yyyymm`)."""
    if encoding == "yyyymm":
        return day.year * 100 + day.month
    return day if encoding == "date" else smallest_uuid7((day - EPOCH).days * DAY_MS)


def day_of(encoding: Encoding, text: str) -> date | None:
    """The day (for `yyyymm` the first of the month) that a column value falls into; None when into none."""
    try:
        if encoding == "yyyymm":
            return date(int(text) // 100, int(text) % 100, 1)
        if encoding == "date":
            return date.fromisoformat(text)
        return EPOCH + timedelta(milliseconds=milliseconds(text))
    except (ValueError, OverflowError):
        return None


def bound_of(encoding: Encoding, text: str) -> date | None:
    """The day that begins with this bound; None when none does."""
    if encoding == "uuid7" and (day_of(encoding, text) is None or milliseconds(text) % DAY_MS):
        return None
    return day_of(encoding, text)


def milliseconds(text: str) -> int:
    """Unix time in a UUIDv7."""
    return uuid.UUID(text).int >> 80


def literal(value: Value, *, native_uuid: bool) -> str:
    """The value as SQL text: DDL takes no parameters, and no value here comes from outside."""
    if isinstance(value, int):
        return str(value)
    return f"'{value.hex if isinstance(value, uuid.UUID) and not native_uuid else value}'"
