"""MySQL and MariaDB: partitions are ranges of one table, each with an upper bound only.

A range without a lower bound takes everything below it. So a missing month is no hole: its rows go to the
next newer partition and leave with that one, later, never earlier. Nothing is reorganised for it, which would
copy rows under a lock; new partitions are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps
from django.db import transaction
from django.db.backends.utils import CursorWrapper

from config.partitions import driver
from config.partitions.driver import Driver, State
from config.partitions.spec import Partition

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
            cursor.execute(f"LOCK TABLES {self._locked()}")
            try:
                # Not START TRANSACTION, which would unlock: Django's atomic() only turns autocommit off.
                with transaction.atomic(self.using):
                    self.guard(partition)
                cursor.execute(
                    f"ALTER TABLE {self.quote(self.table)} DROP PARTITION {self.quote(partition.name)}"
                )
            finally:
                cursor.execute("UNLOCK TABLES")

    def _locked(self) -> str:
        tables = [self.table, *(apps.get_model(label)._meta.db_table for label in self.spec.locks)]
        return ", ".join(f"{self.quote(table)} WRITE" for table in tables)

    @contextmanager
    def _impatient(self) -> Iterator[CursorWrapper]:
        """A cursor that waits shortly for metadata locks: the default is a day, all others behind it."""
        if self.connection.in_atomic_block:
            raise transaction.TransactionManagementError("partitions cannot be changed inside a transaction")
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.lock_wait_timeout")
            (usual,) = cursor.fetchone()
            cursor.execute("SET SESSION lock_wait_timeout = %s", [max(1, round(driver.LOCK_SECONDS))])
            try:
                yield cursor
            finally:
                cursor.execute("SET SESSION lock_wait_timeout = %s", [usual])
