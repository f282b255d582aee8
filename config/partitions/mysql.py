"""MySQL and MariaDB: partitions are ranges of one table, each with an upper bound only.

A range without a lower bound takes everything below it. So a missing month is no hole: its rows go to the
next newer partition and leave with that one, later, never earlier. Nothing is reorganised for it, which would
copy rows under a lock; new partitions are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.backends.utils import CursorWrapper

from config.database.errors import code_of
from config.partitions import driver
from config.partitions.driver import Driver, State
from config.partitions.spec import Keep, Partition

# A table to which a column was once added in place cannot be exchanged any more: its rows are moved.
INSTANT_COLUMNS = 1731
WAITS = "SET SESSION lock_wait_timeout = %s, wait_timeout = %s"
CATALOGUE = """
    SELECT partition_name, partition_description FROM information_schema.partitions
    WHERE table_schema = DATABASE() AND table_name = %s ORDER BY partition_ordinal_position
"""


class MySQL(Driver):
    """DDL commits by itself here: nothing of this runs inside a transaction."""

    def state(self) -> State:
        rows = self._catalogue()
        return "missing" if not rows else "partitioned" if rows[0][0] else "plain"

    def existing(self) -> list[Partition]:
        found = []
        lower = None
        for name, upper in self._catalogue():
            found.append(self.read(name, lower, upper))
            lower = upper
        return found

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
        return bool(self.connection.mysql_is_mariadb)  # type: ignore[attr-defined]

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
        """A cursor that waits shortly for metadata locks, by default a day, and for us: all others stand behind it."""
        if self.connection.in_atomic_block:
            raise transaction.TransactionManagementError("partitions cannot be changed inside a transaction")
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.lock_wait_timeout, @@SESSION.wait_timeout")
            usual = cursor.fetchone()
            # Whoever falls asleep under LOCK TABLES is in no transaction, and would hold the others up all the same.
            idle = settings.DATABASE_IDLE_TRANSACTION_SECONDS or usual[1]
            cursor.execute(WAITS, [max(1, round(driver.LOCK_SECONDS)), idle])
            try:
                yield cursor
            finally:
                cursor.execute(WAITS, usual)
