"""How a fresh table becomes a partitioned one, and back: the SQL of the migration operations."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement

from config.database.clock import database_now
from config.partitions.drivers import MySQL, PostgreSQL
from config.partitions.spec import PartitionSpec, column_of, key_columns

Model = type[models.Model]


class Layout:
    """One table, named by a model of the migration's state. This class, SQLite's, changes nothing."""

    def __init__(self, schema_editor: BaseDatabaseSchemaEditor, model: Model) -> None:
        self.editor = schema_editor
        self.model = model
        self.using = schema_editor.connection.alias
        self.table = self.quote(model._meta.db_table)
        self.key = key_columns(model)
        self.pk = self.key[0]

    def by_range(self, spec: PartitionSpec) -> None:
        """Partition by RANGE of the spec's column, with the partitions that must exist when the migration runs."""

    def by_hash(self, field: str, count: int, key: Sequence[str]) -> None:
        """HASH of a field into `count`; `key` is the SQL primary key, the model's own a plain index."""

    def plain(self, key: Sequence[str] = ()) -> None:
        """Undo either; `key` is what by_hash was given."""

    def quote(self, name: str) -> str:
        return self.editor.connection.ops.quote_name(name)

    def execute(self, sql: str) -> None:
        self.editor.execute(sql, params=None)

    def columns(self, names: Sequence[str]) -> str:
        keys = [self.key if name == "pk" else (column_of(self.model, name),) for name in names]
        return ", ".join(self.quote(column) for columns in keys for column in columns)

    def range_key(self, spec: PartitionSpec) -> list[str]:
        """Every unique key has to contain the partition column, the primary key as well."""
        return ["pk"] if column_of(self.model, spec.column) in self.key else ["pk", spec.column]

    def same_key(self, key: Sequence[str]) -> str:
        """The unique constraint over exactly these fields, which the SQL primary key replaces, or ""."""
        for constraint in self.uniques():
            if set(constraint.fields) == set(key):
                return constraint.name
        return ""

    def uniques(self) -> list[models.UniqueConstraint]:
        constraints = self.model._meta.constraints
        return [constraint for constraint in constraints if isinstance(constraint, models.UniqueConstraint)]

    def index_name(self) -> str:
        return f"{self.model._meta.db_table[:60]}_id"


class MySQLLayout(Layout):
    """One ALTER: AUTO_INCREMENT must be part of a key at every moment."""

    def by_range(self, spec: PartitionSpec) -> None:
        driver = MySQL(spec, self.using, self.model)
        partitions = driver.wanted(database_now(self.using).date())
        key = self.range_key(spec)
        swap = f"{self._primary_key(key)} " if len(key) > 1 else ""
        ranges = ", ".join(map(driver.define, partitions))
        by = f"PARTITION BY RANGE COLUMNS ({self.quote(driver.column)}) ({ranges})"
        self.execute(f"ALTER TABLE {self.table} {swap}{by}")

    def by_hash(self, field: str, count: int, key: Sequence[str]) -> None:
        index = f"ADD INDEX {self.quote(self.index_name())} ({self.quote(self.pk)})"
        changes = [self._primary_key(key), index]
        if same := self.same_key(key):
            changes.append(f"DROP INDEX {self.quote(same)}")
        by = f"PARTITION BY KEY ({self.columns([field])}) PARTITIONS {count:d}"
        self.execute(f"ALTER TABLE {self.table} {', '.join(changes)} {by}")

    def plain(self, key: Sequence[str] = ()) -> None:
        self.execute(f"ALTER TABLE {self.table} REMOVE PARTITIONING")
        changes = [self._primary_key(["pk"])]
        if key:
            changes.append(f"DROP INDEX {self.quote(self.index_name())}")
        if same := self.same_key(key):
            changes.append(f"ADD CONSTRAINT {self.quote(same)} UNIQUE ({self.columns(key)})")
        self.execute(f"ALTER TABLE {self.table} {', '.join(changes)}")

    def _primary_key(self, key: Sequence[str]) -> str:
        return f"DROP PRIMARY KEY, ADD PRIMARY KEY ({self.columns(key)})"


class PostgreSQLLayout(Layout):
    """A table cannot become partitioned: another takes its name, columns and, from the state, indexes."""

    def by_range(self, spec: PartitionSpec) -> None:
        driver = PostgreSQL(spec, self.using, self.model)
        self._refuse_rows()
        self._rebuild(f"PARTITION BY RANGE ({self.quote(driver.column)})", self.range_key(spec))
        for partition in driver.wanted(database_now(self.using).date()):
            self._child(partition.name, driver.values_sql(partition))

    def by_hash(self, field: str, count: int, key: Sequence[str]) -> None:
        self._refuse_rows()
        self._rebuild(f"PARTITION BY HASH ({self.columns([field])})", key, self.same_key(key))
        self.execute(f"CREATE INDEX {self.quote(self.index_name())} ON {self.table} ({self.quote(self.pk)})")
        for remainder in range(count):
            values = f"FOR VALUES WITH (MODULUS {count:d}, REMAINDER {remainder})"
            self._child(f"{self.model._meta.db_table}_h{remainder:02}", values)

    def plain(self, key: Sequence[str] = ()) -> None:
        self._rebuild("", ["pk"], keep_rows=True)

    def _rebuild(self, clause: str, key: Sequence[str], name: str = "", keep_rows: bool = False) -> None:
        name_of_old = f"{self.model._meta.db_table}_old"
        old = self.quote(name_of_old)
        self.execute(f"ALTER TABLE {self.table} RENAME TO {old}")
        # Only so that the sequence of the new identity column gets the usual name.
        usual, aside = (f"{table}_{self.pk}_seq" for table in (self.model._meta.db_table, name_of_old))
        self.execute(f"ALTER SEQUENCE IF EXISTS {self.quote(usual)} RENAME TO {self.quote(aside)}")
        self.execute(f"CREATE TABLE {self.table} (LIKE {old} INCLUDING ALL EXCLUDING INDEXES) {clause}")
        if keep_rows:
            self._copy(old)
        self.execute(f"DROP TABLE {old}")
        constraint = f"CONSTRAINT {self.quote(name)} " if name else ""
        self.execute(f"ALTER TABLE {self.table} ADD {constraint}PRIMARY KEY ({self.columns(key)})")
        self._add_indexes(without=name)

    def _add_indexes(self, without: str) -> None:
        # With CreateModel in the same migration its indexes are still to come: made here, not a second time.
        waiting = self.editor.deferred_sql
        table = self.model._meta.db_table
        waiting[:] = [sql for sql in waiting if not (isinstance(sql, Statement) and sql.references_table(table))]
        for constraint in self.uniques():
            if constraint.name != without:
                self.editor.add_constraint(self.model, constraint)
        indexes: list[Statement] = self.editor._model_indexes_sql(self.model)  # type: ignore[attr-defined]
        for sql in indexes:
            self.editor.execute(sql, params=None)

    def _copy(self, old: str) -> None:
        self.execute(f"INSERT INTO {self.table} SELECT * FROM {old}")  # noqa: S608 (quoted names)
        if isinstance(self.model._meta.pk, models.AutoField | models.BigAutoField):
            pk = self.quote(self.pk)
            self.execute(
                f"SELECT setval(pg_get_serial_sequence('{self.table}', '{self.pk}'), "  # noqa: S608 (quoted)
                f"(SELECT COALESCE(MAX({pk}), 0) + 1 FROM {self.table}), false)"
            )

    def _child(self, name: str, values: str) -> None:
        # Nobody else knows the table yet, so the short form, which locks it, will do.
        self.execute(f"CREATE TABLE {self.quote(name)} PARTITION OF {self.table} {values}")

    def _refuse_rows(self) -> None:
        if self.editor.collect_sql:
            return
        with self.editor.connection.cursor() as cursor:
            cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {self.table})")  # noqa: S608 (quoted name)
            if cursor.fetchone()[0]:
                raise ValueError(f"{self.table} holds rows: partition it while it is empty")


LAYOUTS: dict[str, type[Layout]] = {"postgresql": PostgreSQLLayout, "mysql": MySQLLayout, "sqlite": Layout}


def layout_for(schema_editor: BaseDatabaseSchemaEditor, model: Model) -> Layout:
    """The layout of that database for that table."""
    return LAYOUTS[schema_editor.connection.vendor](schema_editor, model)
