"""Migration operations: partition a table right after CreateModel, and the SQL for that. The model's state never changes."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.ddl_references import Statement
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.utils.module_loading import import_string

from config.database.clock import database_now
from config.database.galera import on_galera
from config.database.queries import is_mariadb
from config.partitions.drivers import MySQL, PostgreSQL
from config.partitions.spec import PartitionSpec, column_of, key_columns


class DatabaseOnly(Operation):
    """An operation on one model's table that changes nothing in Django's state."""

    reversible = True
    model_name: str

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """The state is what it was."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            self.forwards(schema_editor, model)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            self.backwards(schema_editor, model)

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        raise NotImplementedError

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        raise NotImplementedError


class PartitionTable(DatabaseOnly):
    """Partition a table by the time in one of its columns; `spec` is the dotted path of its PartitionSpec.

    The SQL primary key becomes (primary key, partition column) unless it contains that column: then, as with a
    CompositePrimaryKey, it stays as it is. Django keeps seeing the model's own. PostgreSQL rebuilds the table, which must be empty. SQLite leaves it as it is.
    """

    def __init__(self, spec: str) -> None:
        self.path = spec
        self.spec: PartitionSpec = import_string(spec)
        self.model_name = self.spec.model.split(".")[1]

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        layout_for(schema_editor, model).by_range(self.spec)

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        layout_for(schema_editor, model).plain()

    def describe(self) -> str:
        return f"Partition by time as {self.path} says"


class HashPartitionTable(DatabaseOnly):
    """Partition a table by the hash of `field` into `count` fixed partitions; `key` is its SQL primary key.

    The primary key then replaces a unique constraint over the fields of `key`; the model's own primary key
    becomes a plain index. For rows that must be unique for ever, across all times.
    """

    def __init__(self, model_name: str, field: str, count: int, key: Sequence[str] = ()) -> None:
        self.model_name = model_name
        self.field = field
        self.count = count
        self.key = list(key) or [field]

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        layout_for(schema_editor, model).by_hash(self.field, self.count, self.key)

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        layout_for(schema_editor, model).plain(self.key)

    def describe(self) -> str:
        return f"Partition {self.model_name} by hash of {self.field} into {self.count}"


class IndexWithoutPartial(DatabaseOnly):
    """Other columns for a partial index on databases without them, where Django ignores the condition.

    Run it in a later migration than the one that creates the index `name`, which happens at that migration's end.
    """

    def __init__(self, model_name: str, fields: Sequence[str], name: str) -> None:
        self.model_name = model_name
        self.fields = list(fields)
        self.name = name

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        self._replace(schema_editor, model, models.Index(fields=self.fields, name=self.name))

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        self._replace(schema_editor, model, index_named(self.name, model))

    def describe(self) -> str:
        return f"Index {self.name} on {self.model_name} where partial indexes do not exist"

    def _replace(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model], index: models.Index) -> None:
        if not schema_editor.connection.features.supports_partial_indexes:
            schema_editor.remove_index(model, index_named(self.name, model))
            schema_editor.add_index(model, index)


class IndexByFlag(DatabaseOnly):
    """Instead of a partial index, where there are none: an index on a column that is 1 where its condition holds.

    A row that changes between two other states leaves this index alone; with the state itself in the index, each
    change would remove an entry and add one. Elsewhere the column is 0: NULL takes no space in a row, and InnoDB moves
    a row that changes its size (docs/adr/0018). The column is invisible: `SELECT *` and INSERTs do not know it;
    `config.fields.StatusField` does. MariaDB and MySQL rewrite the table.
    """

    def __init__(self, model_name: str, name: str, flag: str) -> None:
        self.model_name = model_name
        self.name = name
        self.flag = flag

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        index = index_named(self.name, model)
        # Django leaves conditions out where it cannot use them, so only Django's own builder of them will do.
        condition = index._get_condition_sql(model, schema_editor)  # type: ignore[attr-defined]
        flag = f"{self.flag} tinyint GENERATED ALWAYS AS (IF({condition}, 1, 0)) STORED INVISIBLE"
        self._alter(schema_editor, model, f"ADD COLUMN {flag}", [self.flag])

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        self._alter(schema_editor, model, f"DROP COLUMN {self.flag}", [])

    def describe(self) -> str:
        return f"Index {self.name} on {self.model_name} by {self.flag} where partial indexes do not exist"

    def _alter(
        self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model], change: str, first: list[str]
    ) -> None:
        if schema_editor.connection.features.supports_partial_indexes:
            return
        quote = schema_editor.quote_name
        columns = [column_of(model, name) for name in index_named(self.name, model).fields]
        indexed = ", ".join(map(quote, [*first, *columns]))
        schema_editor.execute(
            f"ALTER TABLE {quote(model._meta.db_table)} DROP INDEX {quote(self.name)}, {change}, "
            f"ADD INDEX {quote(self.name)} ({indexed})"
        )


def index_named(name: str, model: type[models.Model]) -> models.Index:
    return next(index for index in model._meta.indexes if index.name == name)


class NumberBySequence(DatabaseOnly):
    """On MariaDB, ids of a table come from a sequence: AUTO_INCREMENT of a partitioned one hands out the same id
    twice after a deadlock. Elsewhere nothing changes."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def forwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        if not self._applies(schema_editor):
            return
        table = model._meta.db_table
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {table}")  # noqa: S608 (a table of ours)
            (first,) = cursor.fetchone()
        # Galera refuses a cache unless each node steps over the numbers of the others.
        step = "INCREMENT BY 0 " if on_galera(schema_editor.connection) else ""
        schema_editor.execute(f"CREATE SEQUENCE {table}_ids START WITH {first} {step}CACHE 10000")
        schema_editor.execute(f"ALTER TABLE {table} MODIFY id bigint NOT NULL DEFAULT (NEXT VALUE FOR {table}_ids)")

    def backwards(self, schema_editor: BaseDatabaseSchemaEditor, model: type[models.Model]) -> None:
        if self._applies(schema_editor):
            table = model._meta.db_table
            schema_editor.execute(f"ALTER TABLE {table} MODIFY id bigint NOT NULL AUTO_INCREMENT")
            schema_editor.execute(f"DROP SEQUENCE {table}_ids")

    def describe(self) -> str:
        return f"Number {self.model_name} by a sequence on MariaDB"

    def _applies(self, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        return is_mariadb(schema_editor.connection)


# -- How a fresh table becomes a partitioned one, and back ----------------------------------------------------
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
