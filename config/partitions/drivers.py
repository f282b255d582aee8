"""One driver a database: how partitions are listed, made and dropped, behind a guard that all share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from functools import cached_property
from typing import Literal

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connections, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Min
from django.utils.module_loading import import_string

from config.database import galera
from config.database.clock import database_now
from config.database.queries import is_mariadb
from config.database.retry import code_of
from config.partitions.spec import (
    DropRefused,
    Keep,
    Partition,
    PartitionSpec,
    bound_of,
    column_of,
    day_of,
    literal,
    start_of,
)

# -- What all databases share --------------------------------------------------------------------------------
# Everybody else queues behind a waiting ALTER or DROP: give up soon, the next run tries again.
LOCK_SECONDS: float = 2

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


# -- PostgreSQL: a partition is a table ----------------------------------------------------------------------
RANGE = re.compile(r"FOR VALUES FROM \((MINVALUE|[^,]+)\) TO \((MAXVALUE|[^,]+)\)")
KIND = "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%s)"
CHILDREN = """
    SELECT child.relname, pg_get_expr(child.relpartbound, child.oid), child.oid
    FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = to_regclass(%s)
"""


class PostgreSQL(Driver):
    """Rows of a missing period are refused wherever it lies, so every period that must exist is made."""

    def __init__(self, spec: PartitionSpec, using: str, model: type[models.Model] | None = None) -> None:
        super().__init__(spec, using, model)
        self.prefix = f"{self.table}_p"

    def state(self) -> State:
        with self.connection.cursor() as cursor:
            cursor.execute(KIND, [self.quote(self.table)])
            row = cursor.fetchone()
        return "missing" if row is None else "partitioned" if row[0] else "plain"

    def existing(self) -> list[Partition]:
        with self.connection.cursor() as cursor:
            cursor.execute(CHILDREN, [self.quote(self.table)])
            return oldest_first([self._read(*row) for row in cursor.fetchall()])

    def _read(self, name: str, bound: str, oid: int) -> Partition:
        match = RANGE.fullmatch(bound or "")
        lower, upper = match.groups() if match else (None, None)
        # A period may be dropped and made again when retention grows: the oid tells the two apart.
        return self.read(
            name, None if lower == "MINVALUE" else lower, None if upper == "MAXVALUE" else upper, f".{oid}"
        )

    def create(self, partition: Partition) -> None:
        """Made aside and attached: CREATE TABLE … PARTITION OF would wait for every reader and writer."""
        with transaction.atomic(self.using), self.connection.cursor() as cursor:
            cursor.execute(self._give_up_soon())
            # Stops other rotations and ALTERs, no reader, no writer.
            cursor.execute(f"LOCK TABLE {self.quote(self.table)} IN SHARE UPDATE EXCLUSIVE MODE")
            if any(other.covers(partition) for other in self.existing()):
                raise Keep("another run made it")
            for sql in self.create_sql(partition):
                cursor.execute(sql)

    def create_sql(self, partition: Partition) -> list[str]:
        child, parent = self.quote(partition.name), self.quote(self.table)
        # An empty table needs no CHECK to be attached at once. PostgreSQL refuses one with its own identity.
        return [
            f"CREATE TABLE {child} (LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY)",
            f"ALTER TABLE {parent} ATTACH PARTITION {child} {self.values_sql(partition)}",
        ]

    def values_sql(self, partition: Partition) -> str:
        lower = self.bound(partition.lower) if partition.lower else "MINVALUE"
        upper = self.bound(partition.upper) if partition.upper else "MAXVALUE"
        return f"FOR VALUES FROM ({lower}) TO ({upper})"

    def drop(self, partition: Partition) -> None:
        """In one transaction: its writers out, count, record, drop (or detach)."""
        child = self.quote(partition.name)
        with transaction.atomic(self.using), self.connection.cursor() as cursor:
            cursor.execute(self._give_up_soon())
            # Only writers of this old partition wait while its rows are counted; DROP then locks the whole
            # table, for milliseconds. A cycle of locks with such a writer ends in a deadlock error, never in lost rows.
            cursor.execute(f"LOCK TABLE {child} IN SHARE MODE")
            self.guard(partition)
            if self.spec.detaches:
                cursor.execute(f"ALTER TABLE {self.quote(self.table)} DETACH PARTITION {child}")
            else:
                cursor.execute(f"DROP TABLE {child}")

    def _give_up_soon(self) -> str:
        return f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'"


# -- MySQL and MariaDB: a partition is a range of one table --------------------------------------------------
# A range without a lower bound takes everything below it. So a missing month is no hole: its rows go to the
# next newer partition and leave with that one, later, never earlier. Nothing is reorganised for it, which would
# copy rows under a lock; new partitions are only ever added at the end.
# A table to which a column was once added in place cannot be exchanged any more: its rows are moved.
INSTANT_COLUMNS = 1731
WAITS = "SET SESSION lock_wait_timeout = %s, wait_timeout = %s"
CATALOGUE = """
    SELECT partition_name, partition_description FROM information_schema.partitions
    WHERE table_schema = DATABASE() AND table_name = %s ORDER BY partition_ordinal_position
"""


class MySQL(Driver):
    """DDL commits by itself here: nothing of this runs inside a transaction."""

    @cached_property
    def _node(self) -> galera.Node | None:
        """On Galera this node, after a look at whether another one is written to; asked before the first drop."""
        looks = galera.watched(self.connection)
        return looks and looks[0]

    def _require_sole_writer(self) -> None:
        """A write set of another node would wait for our lock, and whatever we commit or alter then for it, for ever."""
        if self._node and (now := galera.node_of(self.connection)) and (why := now.why_not_alone(self._node)):
            raise DropRefused(why)

    def state(self) -> State:
        rows = self._catalogue()
        return "missing" if not rows else "partitioned" if rows[0][0] else "plain"

    def existing(self) -> list[Partition]:
        partitions = []
        lower = None
        for name, upper in self._catalogue():
            partitions.append(self.read(name, lower, upper))
            lower = upper
        return partitions

    def _catalogue(self) -> list[tuple[str, str]]:
        with self.connection.cursor() as cursor:
            cursor.execute(CATALOGUE, [self.table])
            return list(cursor.fetchall())

    def create(self, partition: Partition) -> None:
        with self._impatient() as cursor:
            cursor.execute(f"ALTER TABLE {self.quote(self.table)} ADD PARTITION ({self.define(partition)})")

    def define(self, partition: Partition) -> str:
        upper = f"({self.bound(partition.upper)})" if partition.upper else "MAXVALUE"
        return f"PARTITION {self.quote(partition.name)} VALUES LESS THAN {upper}"

    def drop(self, partition: Partition) -> None:
        """Under LOCK TABLES, which the ALTER keeps: a writer waits, then finds the next partition."""
        self._require_sole_writer()
        with self._impatient() as cursor:
            aside = self._made_aside(cursor, partition)
            cursor.execute(f"LOCK TABLES {self._locked(aside)}")
            try:
                if self._has_rows(cursor, aside):  # a run died after its exchange: all is recorded
                    self._must_be_empty(cursor, partition, aside)
                else:
                    # Not START TRANSACTION, which would unlock: Django's atomic() only turns autocommit off.
                    with transaction.atomic(self.using):
                        self.guard(partition)
                        self._require_sole_writer()
                    self._exchange(cursor, partition, aside)
                self._remove(cursor, partition)
            finally:
                cursor.execute("UNLOCK TABLES")

    def _remove(self, cursor: CursorWrapper, partition: Partition) -> None:
        table, name = self.quote(self.table), self.quote(partition.name)
        if self.spec.detaches and self._converts:
            own = self.quote(self._aside(partition))
            cursor.execute(f"ALTER TABLE {table} CONVERT PARTITION {name} TO TABLE {own}")
        else:
            cursor.execute(f"ALTER TABLE {table} DROP PARTITION {name}")

    @property
    def _converts(self) -> bool:
        """MariaDB makes a table of a partition in one step; MySQL exchanges it with an empty one first."""
        return is_mariadb(self.connection)

    def _aside(self, partition: Partition) -> str:
        return f"{self.table}_{partition.name}"

    def _made_aside(self, cursor: CursorWrapper, partition: Partition) -> str:
        """MySQL, detaching: the table that takes the partition's rows, made before anything is locked."""
        if not self.spec.detaches or self._converts:
            return ""
        name = self._aside(partition)
        if name not in self.connection.introspection.table_names(cursor):
            cursor.execute(f"CREATE TABLE {self.quote(name)} LIKE {self.quote(self.table)}")
            cursor.execute(f"ALTER TABLE {self.quote(name)} REMOVE PARTITIONING")
        return name

    def _has_rows(self, cursor: CursorWrapper, table: str) -> bool:
        if not table:
            return False
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {self.quote(table)})")  # noqa: S608 (a name of ours)
        return bool(cursor.fetchone()[0])

    def _must_be_empty(self, cursor: CursorWrapper, partition: Partition, aside: str) -> None:
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {self._rows_of(partition)})")  # noqa: S608
        if cursor.fetchone()[0]:
            raise Keep(f"it has rows although {aside} took them: rename that table, then run again")

    def _rows_of(self, partition: Partition) -> str:
        return f"{self.quote(self.table)} PARTITION ({self.quote(partition.name)})"

    def _exchange(self, cursor: CursorWrapper, partition: Partition, aside: str) -> None:
        if not aside:
            return
        table, name = self.quote(self.table), self.quote(partition.name)
        try:
            cursor.execute(f"ALTER TABLE {table} EXCHANGE PARTITION {name} WITH TABLE {self.quote(aside)}")
        except DatabaseError as error:
            if code_of(error) != INSTANT_COLUMNS:
                raise
            # Moved as a whole or not at all, so that a run which dies after it left what an exchange leaves.
            with transaction.atomic(self.using):
                cursor.execute(f"INSERT INTO {self.quote(aside)} SELECT * FROM {self._rows_of(partition)}")  # noqa: S608
                cursor.execute(f"DELETE FROM {self._rows_of(partition)}")  # noqa: S608

    def _locked(self, aside: str = "") -> str:
        tables = [self.table, *(apps.get_model(label)._meta.db_table for label in self.spec.locks)]
        return ", ".join(f"{self.quote(table)} WRITE" for table in [*tables, aside] if table)

    @contextmanager
    def _impatient(self) -> Iterator[CursorWrapper]:
        """A cursor that gives up soon: by default it waits a day for a metadata lock, and all others queue behind it."""
        if self.connection.in_atomic_block:
            raise transaction.TransactionManagementError("partitions cannot be changed inside a transaction")
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.lock_wait_timeout, @@SESSION.wait_timeout")
            usual = cursor.fetchone()
            # Whoever falls asleep under LOCK TABLES is in no transaction, and would hold the others up all the same.
            idle = settings.DATABASE_IDLE_TRANSACTION_SECONDS or usual[1]
            cursor.execute(WAITS, [max(1, round(LOCK_SECONDS)), idle])
            try:
                yield cursor
            finally:
                cursor.execute(WAITS, usual)


# -- SQLite: there are none, rows are deleted in chunks ------------------------------------------------------
CHUNK = 5_000


class SQLite(Driver):
    """Every period exists; the old ones are those that hold rows."""

    note = f"SQLite has no partitions: a drop is a guarded DELETE, {CHUNK:,} rows at a time"

    def state(self) -> State:
        with self.connection.cursor() as cursor:
            tables = self.connection.introspection.table_names(cursor)
        return "partitioned" if self.table in tables else "missing"

    def existing(self) -> list[Partition]:
        wanted = self.wanted(database_now(self.using).date())
        return oldest_first([*self._with_rows(before=wanted[0]), *wanted])

    def _with_rows(self, before: Partition) -> list[Partition]:
        """The periods below `before` that hold rows: one index look-up each, however many rows."""
        partitions: list[Partition] = []
        rest = self.spec.rows(self.using, Partition("", "", None, before.lower))
        while (value := rest.aggregate(first=Min(self.spec.column))["first"]) is not None:
            day = day_of(self.spec.encoding, str(value))
            if day is None:  # such a value belongs to no period: leave it and what follows
                break
            partitions.append(self.spec.partition(start_of(self.spec.period, day)))
            rest = self.spec.rows(self.using, Partition("", "", partitions[-1].upper, before.lower))
        return partitions

    def create(self, partition: Partition) -> None:
        """Nothing to do."""

    def drop(self, partition: Partition) -> None:
        if count := self.unfinished(partition):  # the whole period or nothing, as far as the rows say now
            raise Keep(f"{count} unfinished")
        while self._drop_chunk(partition):
            pass

    def _drop_chunk(self, partition: Partition) -> bool:
        # IMMEDIATE: nobody else writes between the guard and the DELETE.
        with transaction.atomic(self.using):
            keys = self.spec.rows(self.using, partition).order_by("pk").values_list("pk", flat=True)
            last = keys[CHUNK - 1 : CHUNK].first() or keys.last()
            if last is None:
                return False
            chunk = narrowed(partition, last)
            self.release(chunk)
            self.spec.rows(self.using, chunk).delete()
            return True
