"""The interface of a database's partition driver, and the guard that every driver runs before a drop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import date
from typing import Literal

from django.db import connections, models
from django.utils.module_loading import import_string

from config.partitions.encodings import bound_of, literal
from config.partitions.spec import Keep, Partition, PartitionSpec, column_of

# Everybody else queues behind a waiting ALTER or DROP: give up soon, the next run tries again.
LOCK_SECONDS = 2

State = Literal["partitioned", "plain", "missing"]


class Driver(ABC):
    """The partitions of one table in one database; a migration passes the model of its own state."""

    prefix = "p"
    note = ""

    def __init__(self, spec: PartitionSpec, using: str, model: type[models.Model] | None = None) -> None:
        meta = (model or spec.resolve())._meta
        self.spec = spec
        self.using = using
        self.connection = connections[using]
        self.table = meta.db_table
        self.column = column_of(model or spec.resolve(), spec.column)

    @abstractmethod
    def state(self) -> State:
        """Whether the table is there and partitioned."""

    @abstractmethod
    def existing(self) -> list[Partition]:
        """The partitions in the catalogue, oldest first, those with unknown bounds last."""

    @abstractmethod
    def create(self, partition: Partition) -> None:
        """Make it; a partition that another run just made raises Keep or DatabaseError."""

    @abstractmethod
    def drop(self, partition: Partition) -> None:
        """Remove it with its rows, unless the guard raises Keep."""

    def wanted(self, today: date) -> list[Partition]:
        return self.spec.wanted(today, self.prefix)

    def unfinished(self, partition: Partition) -> int:
        """Rows that keep this partition alive."""
        if not self.spec.unfinished:
            return 0
        condition = self.spec.unfinished.replace("%", "%%")
        # The condition comes from a spec in the code, never from a user.
        return self.spec.rows(self.using, partition).extra(where=[condition]).count()  # noqa: S610

    def guard(self, partition: Partition) -> None:
        """Raise Keep, or record the rows before they are dropped. Called when nobody can write to the partition."""
        # Looked up again: another run may have dropped it, or its older neighbour, whose range it inherits.
        now = next((other for other in self.existing() if other.name == partition.name), None)
        if now is None:
            raise Keep("gone already: another run dropped it")
        self.release(now)

    def release(self, partition: Partition) -> None:
        if count := self.unfinished(partition):
            raise Keep(f"{count} unfinished")
        if self.spec.before_drop:
            import_string(self.spec.before_drop)(self.using, self.spec, partition)

    def quote(self, name: str) -> str:
        return self.connection.ops.quote_name(name)

    def bound(self, day: date) -> str:
        """That day's smallest column value as SQL text."""
        native = self.connection.features.has_native_uuid_field
        return literal(self.spec.value(day), native_uuid=native)

    def read(self, name: str, lower: str | None, upper: str | None, key: str = "") -> Partition:
        """A partition of the catalogue; a bound is text, None where there is none."""
        first = None if lower is None else bound_of(self.spec.encoding, lower.strip("'"))
        last = None if upper is None else bound_of(self.spec.encoding, upper.strip("'"))
        if lower is not None and first is None:
            last = None  # without both bounds the partition is never dropped
        label = name.removeprefix(self.prefix)
        return Partition(name, label, first, last, key=f"{label}{key}")


def oldest_first(partitions: list[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda partition: (partition.upper or date.max, partition.name))


def narrowed(partition: Partition, last: object) -> Partition:
    """The rows of a partition up to that primary key, under a name of their own."""
    return replace(partition, last=last, key=f"{partition.label}.{last}")
