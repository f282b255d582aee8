"""How each database unpacks JSON rows, upserts them, and says what changed: one class per vendor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from config.payload import as_json

# Values are of any type that the driver takes or gives.
Row = tuple[Any, ...]
Rows = Sequence[Sequence[Any]]
Params = Sequence[Any]
Values = Mapping[str, Any]

# Instead of a number of values: the partition column lies between two bounds.
BOUNDS = -1
LONGEST_TEXT = 249  # characters of an identifier, such as a topic; more is `long`
REFERENCE = re.compile(r"\b(old|new)\.(\w+)")


class Column(NamedTuple):
    """A column of a table; `kind` is text (an identifier), long (any text), int, bigint, float, bool, uuid, json, date
    or timestamp."""

    name: str
    kind: str


@dataclass(frozen=True)
class Lookup:
    """Stored rows of a table wanted by the keys of unpacked rows.

    `fixed`: key columns with one value for all; `prune`: the partition column, `count` values of it.
    """

    table: str
    key: Sequence[Column]
    fixed: Sequence[str]
    prune: str
    count: int
    columns: Sequence[str]


@dataclass(frozen=True)
class Update:
    """`UPDATE … SET` of a table's rows by the keys of unpacked rows, with what follows the key in each.

    `constants`: one value for all; `fixed`, `prune`, `count` as in `Lookup` (`BOUNDS`: between two values);
    `primary`: the key begins with the primary key.
    """

    table: str
    key: Sequence[Column]
    changes: Sequence[Column]
    constants: Sequence[Column]
    fixed: Sequence[str]
    guard: str
    prune: str
    count: int
    primary: bool = False

    @property
    def columns(self) -> list[Column]:
        """Of the unpacked rows."""
        return [*self.key, *self.changes]


class Insertion(NamedTuple):
    """A row to insert: its table, and the SQL of each of its columns."""

    table: str
    values: Mapping[str, str]


class Dialect:
    """What differs between databases when a batch goes into one statement."""

    name = ""
    quote = '"'
    returns_rows = True  # INSERT … RETURNING exists
    returns_only_changed = True  # … and leaves out rows the guard refused
    casts: Mapping[str, str] = {}
    locking = " FOR UPDATE"  # behind a SELECT
    inserted = ""  # a FROM item and condition: one row if the statement before inserted one

    def quoted(self, name: str) -> str:
        return f"{self.quote}{name}{self.quote}"

    def listed(self, names: Sequence[str], prefix: str = "") -> str:
        return ", ".join(prefix + self.quoted(name) for name in names)

    def cast(self, sql: str, kind: str) -> str:
        return sql

    def cursor(self, connection: BaseDatabaseWrapper) -> CursorWrapper:
        """A cursor for one statement with a whole batch in its parameters."""
        return connection.cursor()

    def parameters(self, rows: Rows) -> Params:
        """The rows as statement parameters."""
        return [as_json(rows)]

    def source(self, columns: Sequence[Column], alias: str) -> str:
        """A FROM item that unpacks `parameters`."""
        raise NotImplementedError

    def incoming_parameters(self, rows: Rows) -> Params:
        """Rows for `incoming` as statement parameters."""
        return self.parameters(rows)

    def incoming(self, columns: Sequence[Column], alias: str) -> str:
        """A FROM item with rows that are only inserted: no key is looked up by them, so they need no collation."""
        return self.source(columns, alias)

    def value(self, column: Column, position: int, alias: str) -> str:
        """One unpacked column."""
        return f"{alias}.{self.quoted(column.name)}"

    def refer(self, table: str, sql: str) -> str:
        """Replace `old.x` and `new.x` by this database's names of the stored and the incoming value."""
        return REFERENCE.sub(lambda match: self.old(table, match[2]) if match[1] == "old" else self.new(match[2]), sql)

    def old(self, table: str, name: str) -> str:
        return f"{self.quoted(table)}.{self.quoted(name)}"

    def new(self, name: str) -> str:
        return f"excluded.{self.quoted(name)}"

    def upsert(
        self,
        table: str,
        columns: Sequence[Column],
        constants: Sequence[Column],
        key: Sequence[str],
        update: Mapping[str, str],
        guard: str,
        token: str,
        returning: Sequence[str],
    ) -> str:
        """The whole statement."""
        names = [column.name for column in [*constants, *columns]]
        values = [self.cast("%s", constant.kind) for constant in constants]
        values += [self.value(column, position, "r") for position, column in enumerate(columns)]
        sql = (
            f"INSERT INTO {self.quoted(table)} ({self.listed(names)}) "
            f"SELECT {', '.join(values)} FROM {self.incoming(columns, 'r')}"
        )
        sql += self.on_conflict(table, key, update, guard, token) if key else ""
        return sql + (f" RETURNING {self.listed(returning)}" if returning else "")

    def on_conflict(self, table: str, key: Sequence[str], update: Mapping[str, str], guard: str, token: str) -> str:
        if not update:
            return f" ON CONFLICT ({self.listed(key)}) DO NOTHING"
        assignments = ", ".join(f"{self.quoted(name)} = {sql}" for name, sql in update.items())
        where = f" WHERE {guard}" if guard else ""
        return f" ON CONFLICT ({self.listed(key)}) DO UPDATE SET {assignments}{where}"

    def insert_behind_key(
        self, key: Insertion, unique: Sequence[str], token: str, others: Sequence[Insertion]
    ) -> list[str]:
        """Statements that insert a key and, only where it was new, the other rows. The row count of the last one
        tells whether it was; `token` is a column of the key that a repetition may change."""
        first = self._insert(key, f"VALUES ({{}}) {self.if_known(unique, token)}")
        return [first, *(self._insert(row, f"SELECT {{}} FROM {self.inserted}") for row in others)]

    def if_known(self, unique: Sequence[str], token: str) -> str:
        return f"ON CONFLICT ({self.listed(unique)}) DO NOTHING"

    def insert_locking(self, row: Insertion, source: str, key: Sequence[str]) -> str:
        """A statement that inserts `row`, whose values may be columns of a row of the table `source` with this key: named
        parameters. That row is locked; where there is none, nothing is inserted."""
        where = " AND ".join(f"{self.quoted(name)} = %({name})s" for name in key)
        return self._insert(row, f"SELECT {{}} FROM {self.quoted(source)} WHERE {where}{self.locking}")

    def _insert(self, row: Insertion, form: str) -> str:
        columns, values = self.listed(list(row.values)), ", ".join(row.values.values())
        return f"INSERT INTO {self.quoted(row.table)} ({columns}) {form.format(values)}"

    def execute_all(self, cursor: CursorWrapper, statements: Sequence[str], values: Values) -> None:
        """Run statements with named parameters."""
        for statement in statements:
            cursor.execute(statement, values)

    def adapted(self, connection: BaseDatabaseWrapper, values: Values) -> Values:
        """Moments and ids as the columns of this database take them."""
        moment, native = connection.ops.adapt_datetimefield_value, connection.features.has_native_uuid_field
        moments = {name: moment(value) for name, value in values.items() if isinstance(value, datetime)}
        ids = {name: value for name, value in values.items() if isinstance(value, UUID)}
        return {**values, **moments, **{name: str(pk) if native else pk.hex for name, pk in ids.items()}}

    def select_by_key(self, lookup: Lookup) -> str:
        """Stored rows joined to the unpacked keys."""
        pairs, pruned = self._lookup_parts(lookup)
        sql = (
            f"SELECT {self.listed(lookup.columns, 't.')} FROM {self.source(lookup.key, 'k')} "
            f"{self.join} {self.quoted(lookup.table)} t ON {' AND '.join(pairs)}"
        )
        return sql + (f" WHERE {pruned}" if pruned else "")

    join = "JOIN"

    def _lookup_parts(self, lookup: Lookup) -> tuple[list[str], str]:
        """Conditions on the key, and one on the partition column: MySQL prunes partitions by a list of values,
        not by joined ones."""
        pairs = [
            f"t.{self.quoted(column.name)} = {self.value(column, position, 'k')}"
            for position, column in enumerate(lookup.key)
        ]
        pairs += [f"t.{self.quoted(name)} = %s" for name in lookup.fixed]
        listed = ", ".join(["%s"] * lookup.count)
        return pairs, f"t.{self.quoted(lookup.prune)} IN ({listed})" if listed else ""

    def update_by_key(self, change: Update) -> str:
        """The statement; its parameters come in the order of `update_parameters`."""
        assignments, joined, where = self._update_parts(change)
        return (
            f"UPDATE {self.quoted(change.table)} SET {assignments} FROM {self.source(change.columns, 'r')} "
            f"WHERE {' AND '.join([*joined, *where])}"
        )

    def update_parameters(self, constants: Params, rows: Rows, prune: Params) -> Params:
        return [*constants, *self.parameters(rows), *prune]

    def _update_parts(self, change: Update) -> tuple[str, list[str], list[str]]:
        target = f"{self.quoted(change.table)}." if self.name in ("mysql", "mariadb") else ""
        at = {column.name: self.value(column, index, "r") for index, column in enumerate(change.columns)}
        assignments = [
            f"{target}{self.quoted(constant.name)} = {self.cast('%s', constant.kind)}" for constant in change.constants
        ]
        assignments += [f"{target}{self.quoted(column.name)} = {at[column.name]}" for column in change.changes]
        joined = [f"{self.old(change.table, column.name)} = {at[column.name]}" for column in change.key]
        where = [f"{self.old(change.table, name)} = %s" for name in change.fixed]
        if change.count:
            bounds = "BETWEEN %s AND %s" if change.count == BOUNDS else f"IN ({', '.join(['%s'] * change.count)})"
            where.append(f"{self.old(change.table, change.prune)} {bounds}")
        where += [self._guarded(change, at)] if change.guard else []
        return ", ".join(assignments), joined, where

    def _guarded(self, change: Update, at: Mapping[str, str]) -> str:
        return REFERENCE.sub(
            lambda match: self.old(change.table, match[2]) if match[1] == "old" else at[match[2]], change.guard
        )
