"""One statement for many rows: guarded upserts and updates, in the dialect of each database."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from config.database.dialects.base import (
    BOUNDS,
    LONGEST_TEXT,
    Column,
    Dialect,
    Lookup,
    Params,
    Row,
    Rows,
    Update,
    Values,
)
from config.database.dialects.vendors import dialect_for, known_dialect

# -- Upsert --------------------------------------------------------------------------------------------------
# Per-row ORM calls reach 1 000 rows/s and `bulk_create(update_conflicts=True)` cannot express "only while
# pending and only if newer". One statement per batch with JSON arrays (PostgreSQL, SQLite) or literals (MariaDB, MySQL:
# docs/adr/0016) reaches 50 000 and more (docs/benchmarks.md). config/database/dialects says how each vendor writes it.
KINDS = {
    "AutoField": "int",
    "IntegerField": "int",
    "BigAutoField": "bigint",
    "BigIntegerField": "bigint",
    "FloatField": "float",
    "BooleanField": "bool",
    "DateField": "date",
    "DateTimeField": "timestamp",
    "UUIDField": "uuid",
    "JSONField": "json",
    "TextField": "long",
}


@cache
def columns_of(model: type[models.Model], names: str) -> tuple[Column, ...]:
    """Columns of a model's table by their names, separated by spaces as in a namedtuple; the fields say their kinds."""
    fields = {field.column: field for field in model._meta.concrete_fields}
    return tuple(Column(name, _kind_of(fields[name])) for name in names.split())


def new(names: str) -> dict[str, str]:
    """For `Upsert.update`: these columns take the incoming values."""
    return {name: f"new.{name}" for name in names.split()}


def _kind_of(field: models.Field) -> str:
    if isinstance(field, models.ForeignKey):
        return _kind_of(field.target_field)
    if isinstance(field, models.CharField):
        return "text" if (field.max_length or 0) <= LONGEST_TEXT else "long"
    return KINDS[field.get_internal_type()]


class Packed(list[Any]):
    """Rows that were encoded before, on the polling thread: the writer's thread is the one that a batch waits for."""

    def __init__(self, rows: Iterable[Sequence[object]], using: str = DEFAULT_DB_ALIAS) -> None:
        super().__init__(rows)
        # Which database this is only a connection can tell, and this thread may have none: known once one was used.
        self.dialect = known_dialect(using)
        self.parameters = self.dialect.incoming_parameters(self) if self.dialect and self else []


@dataclass
class Upsert:
    """`INSERT … ON CONFLICT (key) DO UPDATE SET update WHERE guard`, for many rows at once.

    `columns` come from the rows, `constants` are the same in the whole batch; all are names separated by spaces.
    `update` maps columns to SQL in which `old.x` is the stored value and `new.x` the incoming one; an empty
    mapping leaves known rows alone. Without a `key` it is a plain INSERT, and a known row an error. With a
    `token` column every inserted or updated row carries this run's token: that is how MariaDB and MySQL tell
    a changed row from an untouched one (RETURNING and row counts cannot). Keys must be distinct within one
    run: PostgreSQL refuses to change a row twice. Long columns go last: MariaDB walks each row from its start
    for every column it unpacks (a payload of 370 bytes in the middle of eight: 1.5 times as slow).
    """

    model: type[models.Model]
    columns: str
    key: str
    update: Mapping[str, str]
    constants: str = ""
    guard: str = ""
    token: str = ""
    returning: str = ""
    prune: str = ""  # the partition column, if the table has one: look-ups name its values
    using: str = DEFAULT_DB_ALIAS
    _sql: dict[str, str] = field(default_factory=dict)

    def run(self, rows: Rows, constants: Values | None = None) -> list[Row]:
        """Write `rows` (values in the order of `columns`); returns `returning` of the rows that changed."""
        if not rows:
            return []
        dialect = dialect_for(self.connection)
        values = dict(constants or {})
        if self.token:
            values[self.token] = secrets.randbits(62) + 1
        returns = bool(self.returning) and dialect.returns_rows
        if dialect.name not in self._sql:
            self._sql[dialect.name] = self._build(dialect, returns)
        if isinstance(rows, Packed) and rows.dialect is dialect:
            incoming = rows.parameters
        else:
            incoming = dialect.incoming_parameters(rows)
        params = [*adapted(self.connection, self._constants, values), *incoming]
        with dialect.cursor(self.connection) as cursor:
            cursor.execute(self._sql[dialect.name], params)
            stored = cursor.fetchall() if returns else []
        if not self.returning:
            return []
        if not returns:
            fixed = {name: values[name] for name in self.constants.split() if name in self._key}
            stored = self.read(self.keys_of(rows), [*self.returning.split(), *self._verdict(dialect)], fixed)
        return self._changed(dialect, stored, values)

    def read(self, keys: Rows, columns: Sequence[str], fixed: Values | None = None) -> list[Row]:
        """`columns` of the stored rows with these keys.

        `keys` hold the key columns that come from the rows, in the order of `key`; `fixed` the constant ones.
        """
        if not keys:
            return []
        dialect = dialect_for(self.connection)
        key = [self._columns[position] for position in self._key_positions]
        pruned = next((index for index, column in enumerate(key) if column.name == self.prune), None)
        listed = sorted({row[pruned] for row in keys}) if pruned is not None else []
        sql = dialect.select_by_key(Lookup(self.table, key, list(fixed or {}), self.prune, len(listed), columns))
        with dialect.cursor(self.connection) as cursor:
            cursor.execute(sql, [*dialect.parameters(keys), *(fixed or {}).values(), *listed])
            return list(cursor.fetchall())

    def keys_of(self, rows: Rows) -> Rows:
        """The key columns of rows, as `read` wants them."""
        return [[row[position] for position in self._key_positions] for row in rows]

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.using]

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    @cached_property
    def _columns(self) -> Sequence[Column]:
        return columns_of(self.model, self.columns)

    @cached_property
    def _constants(self) -> Sequence[Column]:
        return columns_of(self.model, f"{self.constants} {self.token}")

    @cached_property
    def _key(self) -> list[str]:
        return self.key.split()

    @cached_property
    def _key_positions(self) -> list[int]:
        names = self.columns.split()
        return [names.index(name) for name in self._key if name in names]

    def _changed(self, dialect: Dialect, stored: list[Row], values: Values) -> list[Row]:
        if not self._verdict(dialect):
            return stored
        mine = values[self.token]
        return [row[:-1] for row in stored if row[-1] == mine]

    def _verdict(self, dialect: Dialect) -> list[str]:
        """The token column, where RETURNING does not tell changed rows from untouched ones."""
        known = dialect.returns_rows and dialect.returns_only_changed
        return [self.token] if self.token and not known else []

    def _build(self, dialect: Dialect, returns: bool) -> str:
        update = {name: dialect.refer(self.table, sql) for name, sql in self.update.items()}
        if self.token and update:
            update = {self.token: dialect.refer(self.table, f"new.{self.token}"), **update}
        returned = [*self.returning.split(), *self._verdict(dialect)]
        return dialect.upsert(
            self.table,
            self._columns,
            self._constants,
            self._key,
            update,
            dialect.refer(self.table, self.guard),
            self.token,
            returned if returns else [],
        )


def adapted(connection: BaseDatabaseWrapper, columns: Iterable[Column], values: Values) -> Params:
    """The values of constant columns as the driver takes them."""
    moment = connection.ops.adapt_datetimefield_value
    return [moment(values[name]) if kind == "timestamp" else values[name] for name, kind in columns]


def timestamp_text(value: datetime, using: str = DEFAULT_DB_ALIAS) -> str:
    """A timestamp as text for a row of a statement."""
    adapted = connections[using].ops.adapt_datetimefield_value(value)
    return adapted if isinstance(adapted, str) else value.isoformat()


def uuid_text(value: UUID, using: str = DEFAULT_DB_ALIAS) -> str:
    """A UUID as text for a row of a statement: as the column stores it."""
    return uuid_writer(using)(value)


def uuid_writer(using: str = DEFAULT_DB_ALIAS) -> Callable[[UUID], str]:
    """`uuid_text` as a function, for many ids: looking up the connection takes longer than writing an id."""
    return str if connections[using].features.has_native_uuid_field else attrgetter("hex")


# -- Update by key -------------------------------------------------------------------------------------------
@dataclass
class Rewrite:
    """`UPDATE … SET` of many rows by key, each with values of its own, in one statement.

    All columns are names separated by spaces. `rows` hold the key columns and then the changed ones. `guard` is SQL over
    `old.x` and `new.x`.
    """

    model: type[models.Model]
    key: str
    changes: str
    constants: str = ""
    fixed: str = ""
    guard: str = ""
    prune: str = ""
    span: str = ""  # instead of `prune`: the key column that partitions, bounded by the rows' extremes
    using: str = DEFAULT_DB_ALIAS

    def run(self, rows: Rows, constants: Values | None = None, prune: Params = ()) -> int:
        """Change `rows`; `constants` also holds the values of the `fixed` columns, which are part of the key;
        `prune` lists the partition column's values. Returns how many rows matched."""
        if not rows:
            return 0
        if self.span:
            place = self.key.split().index(self.span)
            prune = [min(row[place] for row in rows), max(row[place] for row in rows)]
        connection = connections[self.using]
        dialect = dialect_for(connection)
        values = constants or {}
        change = self._change(BOUNDS if self.span else len(prune))
        constant = adapted(connection, change.constants, values)
        fixed = [values[name] for name in change.fixed]
        with dialect.cursor(connection) as cursor:
            cursor.execute(dialect.update_by_key(change), dialect.update_parameters(constant, rows, [*fixed, *prune]))
            return int(cursor.rowcount)

    def _change(self, count: int) -> Update:
        model, prune = self.model, self.span or self.prune
        key, changes, constants = (columns_of(model, names) for names in (self.key, self.changes, self.constants))
        primary = key[0].name == model._meta.pk.column
        table, fixed = model._meta.db_table, self.fixed.split()
        return Update(table, key, changes, constants, fixed, self.guard, prune, count, primary)
