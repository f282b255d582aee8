"""Migration operations: partition a table right after CreateModel. The model's state never changes."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.utils.module_loading import import_string

from config.database.galera import on_galera
from config.database.queries import is_mariadb
from config.partitions.layout import layout_for
from config.partitions.spec import PartitionSpec, column_of


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
