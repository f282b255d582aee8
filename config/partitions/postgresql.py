"""PostgreSQL: partitions are tables of their own, attached to their parent."""

from __future__ import annotations

import re

from django.db import models, transaction

from config.partitions import driver
from config.partitions.driver import Driver, State, oldest_first
from config.partitions.spec import Keep, Partition, PartitionSpec

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
            return oldest_first([self._found(*row) for row in cursor.fetchall()])

    def _found(self, name: str, bound: str, oid: int) -> Partition:
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
        return f"SET LOCAL lock_timeout = '{driver.LOCK_SECONDS * 1000:.0f}ms'"
