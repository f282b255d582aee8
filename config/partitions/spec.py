"""The declaration of a partitioned table: its periods, how its column encodes a day, what keeps a partition."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from django.apps import apps
from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from config.fields import smallest_uuid7

# -- Months and days, in UTC ---------------------------------------------------------------------------------
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


# -- How a column encodes a day ------------------------------------------------------------------------------
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


# -- Partitions, and what is declared of their table ---------------------------------------------------------
class Keep(Exception):
    """Raised by a guard: this partition stays, and the text says why. `before_drop` may raise it, too."""


class DropRefused(Exception):
    """Raised by a driver: nothing may be dropped here now, and the text says why and what to do."""


@dataclass(frozen=True)
class Partition:
    """Rows whose column lies in [lower, upper). No lower: all below. No upper: unknown, never dropped."""

    name: str  # in the database's catalogue
    label: str  # 202611, or 20261121 for a day
    lower: date | None
    upper: date | None
    # Names what a drop takes away, once and for ever: record what is dropped under this.
    key: str = ""
    # SQLite deletes in chunks: the chunk ends with this primary key.
    last: object = None

    def covers(self, other: Partition) -> bool:
        """A row of `other` would be stored here."""
        if self.upper is None or other.upper is None or other.upper > self.upper:
            return False
        return self.lower is None or (other.lower is not None and self.lower <= other.lower)

    def holds(self, day: date) -> bool:
        return self.upper is not None and day < self.upper and (self.lower is None or self.lower <= day)


def column_of(model: type[models.Model], field: str) -> str:
    """The column of a field; `pk` is the primary key."""
    target = model._meta.pk if field == "pk" else model._meta.get_field(field)
    if not isinstance(target, models.Field):
        raise FieldDoesNotExist(f"{model._meta.label}.{field} has no column")
    return str(target.column)


def key_columns(model: type[models.Model]) -> tuple[str, ...]:
    """The columns of the primary key: several where it is a CompositePrimaryKey."""
    pk = model._meta.pk
    return pk.columns if isinstance(pk, models.CompositePrimaryKey) else (column_of(model, "pk"),)


@dataclass(frozen=True)
class PartitionSpec:
    """One time-partitioned table.

    `ahead` is in periods. `back` bounds the periods that must exist although they are past; None: the whole
    retention window. Retention is read from one setting, in months or days, and 0 is for ever.
    `unfinished` is an SQL condition on rows that keep their partition alive.

    `before_drop` names a function `f(using, spec, partition)` that runs when nobody can write to the
    partition any more; `spec.rows(using, partition)` is exactly what will go. It records them *under
    `partition.key`, replacing* what is recorded there, and runs in the transaction of the drop. On MySQL and
    MariaDB the drop commits by itself, a moment later: after a crash in between the rows are still there and
    recorded as well, so a reader leaves out the keys in `living_keys(spec)`; the next rotation replaces them.
    There it also reaches only the tables of the models in `locks`, without aliases. It may raise `Keep`.

    `archive_setting` names a setting; where it says "detach", a partition becomes a table of its own instead
    of going.
    """

    model: str
    column: str
    period: Period
    encoding: Encoding
    ahead: int = 3
    back: int | None = None
    keep_months_setting: str = ""
    keep_days_setting: str = ""
    unfinished: str = ""
    before_drop: str = ""
    locks: tuple[str, ...] = ()
    archive_setting: str = ""

    def __post_init__(self) -> None:
        if bool(self.keep_months_setting) == bool(self.keep_days_setting):
            raise ValueError(f"{self.model}: retention comes from one setting, in months or in days")
        if self.encoding == "yyyymm" and self.period != "month":
            raise ValueError(f"{self.model}: a yyyymm column can only be partitioned by month")

    @property
    def detaches(self) -> bool:
        """Whether a finished partition is set aside as a table, not dropped."""
        return bool(self.archive_setting) and getattr(settings, self.archive_setting) == "detach"

    @property
    def app_label(self) -> str:
        return self.model.split(".")[0]

    def resolve(self) -> type[models.Model]:
        return apps.get_model(self.model)

    def value(self, day: date) -> Value:
        """The smallest column value of that day."""
        return value_of(self.encoding, day)

    def oldest(self, today: date) -> date | None:
        """Partitions that ended on or before this day may be dropped; None: none ever."""
        keep = getattr(settings, self.keep_months_setting or self.keep_days_setting)
        if not keep:
            return None
        if self.keep_days_setting:
            return today - timedelta(days=keep)
        return shift("month", start_of("month", today), -keep)

    def kept_from(self, now: datetime) -> Value:
        """The smallest column value that no rotation has dropped by then, while retention was never shorter."""
        return self.value(self.oldest(now.astimezone(UTC).date()) or EPOCH)

    def partition(self, start: date, prefix: str = "p") -> Partition:
        """The partition of the period that begins at `start`."""
        label = label_of(self.period, start)
        return Partition(prefix + label, label, start, shift(self.period, start, 1), key=label)

    def wanted(self, today: date, prefix: str = "p") -> list[Partition]:
        """What has to exist on that day, oldest first."""
        current = start_of(self.period, today)
        back = shift(self.period, current, -(self.back or 0))
        oldest = self.oldest(today)
        first = back if oldest is None else start_of(self.period, oldest)
        if self.back is not None:
            first = max(first, back)
        last = shift(self.period, current, self.ahead)
        partitions = []
        while first <= last:
            partitions.append(self.partition(first, prefix))
            first = shift(self.period, first, 1)
        return partitions

    def rows(self, using: str, partition: Partition) -> models.QuerySet:
        """The rows in a partition, found by their column, so that no other partition is read."""
        limits: dict[str, object] = {}
        if partition.lower is not None:
            limits[f"{self.column}__gte"] = self.value(partition.lower)
        if partition.upper is not None:
            limits[f"{self.column}__lt"] = self.value(partition.upper)
        if partition.last is not None:
            limits["pk__lte"] = partition.last
        return self.resolve()._default_manager.using(using).filter(**limits)
