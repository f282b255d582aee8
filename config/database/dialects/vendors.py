"""The four databases: what each says differently, and rows as literals where that is faster."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from config.database.dialects.base import LONGEST_TEXT, Column, Dialect, Insertion, Lookup, Params, Rows, Update, Values
from config.payload import as_json

# -- Rows as literals ----------------------------------------------------------------------------------------
WHOLE = frozenset({int, bool})
KNOWN = frozenset({str, int, bool, float, type(None)})


def rows_of_literals(rows: Rows, row: str = "") -> bytes:
    """`(1, 'a'), (2, 'b')`, each with the word `row` before it; right under every sql_mode. TypeError for other types."""
    columns = [_column(values) for values in zip(*rows, strict=True)]
    return f"{row}({f'), {row}('.join(map(', '.join, zip(*columns, strict=True)))})".encode()


def _column(values: Params) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds <= WHOLE:
        return list(map(int.__repr__, values))
    if kinds == {str}:
        return list(map(_writer_of(values), values))
    if not kinds <= KNOWN:
        raise TypeError(f"no literals for {kinds - KNOWN}")
    write = _writer_of([value for value in values if isinstance(value, str)])
    return ["NULL" if value is None else write(value) if isinstance(value, str) else repr(+value) for value in values]


def _writer_of(texts: Sequence[str]) -> Callable[[str], str]:
    """One form for a whole column: two kinds of literals have two collations, and these do not mix."""
    together = "".join(texts)
    if "\\" in together:  # whether it escapes depends on the sql_mode
        return _hexadecimal
    return _quoted if "'" in together else "'{}'".format


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _hexadecimal(text: str) -> str:
    return f"_utf8mb4 x'{text.encode().hex()}'"


# -- The four databases --------------------------------------------------------------------------------------
class PostgreSQL(Dialect):
    """One JSON array per column: 1.4 times the rows/s of one array of rows."""

    name = "postgresql"
    inserted = "inserted"
    casts = {
        "int": "int",
        "date": "date",
        "bigint": "bigint",
        "timestamp": "timestamptz",
        "uuid": "uuid",
        "text": "text",
        "long": "text",
        "float": "double precision",
        "bool": "boolean",
        "json": "jsonb",
    }

    def cursor(self, connection: BaseDatabaseWrapper) -> CursorWrapper:
        """Parameters beside the statement: as literals of it, a megabyte is escaped here and parsed over there.

        And prepared, once a session: planning an INSERT into a partitioned table takes longer than the INSERT.
        """
        connection.ensure_connection()
        session = connection.connection
        usual = session.cursor_factory
        session.cursor_factory = _binding_cursor(connection.alias)
        try:
            return connection.cursor()
        finally:
            session.cursor_factory = usual

    def cast(self, sql: str, kind: str) -> str:
        return f"{sql}::{self.casts[kind]}"

    def parameters(self, rows: Rows) -> Params:
        return [as_json(column) for column in zip(*rows, strict=True)]

    def insert_behind_key(
        self, key: Insertion, unique: Sequence[str], token: str, others: Sequence[Insertion]
    ) -> list[str]:
        """One statement, planned once a session: orders are written more often than anything else."""
        first, *named, last = super().insert_behind_key(key, unique, token, others)
        parts = [f"inserted AS ({first} RETURNING 1)", *(f"row{n} AS ({sql})" for n, sql in enumerate(named))]
        return [f"WITH {', '.join(parts)} {last}"]

    def adapted(self, connection: BaseDatabaseWrapper, values: Values) -> Values:
        return values

    def source(self, columns: Sequence[Column], alias: str) -> str:
        arrays = ", ".join(["json_array_elements_text(%s::json)"] * len(columns))
        return f"ROWS FROM ({arrays}) AS {alias} ({self.listed([column.name for column in columns])})"

    def value(self, column: Column, position: int, alias: str) -> str:
        plain = f"{alias}.{self.quoted(column.name)}"
        return plain if column.kind in ("text", "long") else self.cast(plain, column.kind)

    def select_by_key(self, lookup: Lookup) -> str:
        """A look-up for each key, which `OFFSET 0` keeps apart.

        Joined, 500 keys among 100 000 rows in 16 partitions cost ten times as much: the planner does not know
        that each key needs one partition only, and reads the whole table.
        """
        pairs, pruned = self._lookup_parts(lookup)
        where = " AND ".join([*pairs, pruned] if pruned else pairs)
        columns, table = lookup.columns, self.quoted(lookup.table)
        return (
            f"SELECT {self.listed(columns, 'f.')} FROM {self.source(lookup.key, 'k')} CROSS JOIN LATERAL "
            f"(SELECT {self.listed(columns, 't.')} FROM {table} t WHERE {where} OFFSET 0) f"
        )


@cache
def _binding_cursor(alias: str) -> type[CursorWrapper]:
    """Django's cursor that binds on the server, counted in the metrics like every other one."""
    from django.db.backends.postgresql.base import ServerBindingCursor  # needs the driver, which is an extra
    from django_prometheus.db.common import ExportingCursorWrapper

    usual: Any = ServerBindingCursor

    class PreparingCursor(ServerBindingCursor):
        """Prepares what it executes; Django's session itself prepares nothing."""

        def execute(self: Any, query: str, params: object = None, **options: object) -> object:
            threshold = self.connection.prepare_threshold
            self.connection.prepare_threshold = 0
            try:
                return usual.execute(self, query, params, **options)
            finally:
                self.connection.prepare_threshold = threshold
                # Where Django's own log of queries looks; of what was prepared the driver leaves nothing there.
                self._query = self._query or SimpleNamespace(query=query.encode())

    return ExportingCursorWrapper(usual if is_pooled(alias) else PreparingCursor, alias, "postgresql")


def is_pooled(alias: str) -> bool:
    """Behind a pooler that shares sessions by transaction there is none to prepare in, or to listen: Django's own switch."""
    return bool(connections[alias].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


class SQLite(Dialect):
    """JSON rows through json_each."""

    name = "sqlite"
    locking = ""  # whoever writes has locked all
    inserted = "(SELECT 1) WHERE changes() = 1"

    def source(self, columns: Sequence[Column], alias: str) -> str:
        return f"json_each(%s) AS {alias}"

    def value(self, column: Column, position: int, alias: str) -> str:
        return f"json_extract({alias}.value, '$[{position}]')"

    def on_conflict(self, table: str, key: Sequence[str], update: Mapping[str, str], guard: str, token: str) -> str:
        # Without WHERE the parser takes ON for the ON of a join.
        return " WHERE true" + super().on_conflict(table, key, update, guard, token)

    # Never reordered. Left to itself the planner takes the constants for the best start of an index, and walks
    # all rows for each row of the table: a claim among 40 000 orders held the one write lock for minutes.
    join = "CROSS JOIN"

    def update_by_key(self, change: Update) -> str:
        assignments, joined, where = self._update_parts(change)
        name = self.quoted(change.table)
        return (
            f"UPDATE {name} SET {assignments} FROM (SELECT {name}.rowid AS place, r.value AS value "
            f"FROM {self.source(change.columns, 'r')} {self.join} {name} ON {' AND '.join([*joined, *where])} "
            # The limit keeps this a table of its own, looked up first.
            f"LIMIT -1) AS r WHERE {name}.rowid = r.place"
        )


class Literal:
    """SQL that goes into a statement as it is."""

    def __init__(self, sql: bytes) -> None:
        self.sql = sql


class MySQL(Dialect):
    """JSON rows through JSON_TABLE; ON DUPLICATE KEY UPDATE has no WHERE, so the token carries the verdict."""

    name = "mysql"
    quote = "`"
    returns_rows = False
    join = "STRAIGHT_JOIN"
    row_word = "ROW"  # before each row of a VALUES list
    casts = {
        "int": "INT",
        "date": "DATE",
        "bigint": "BIGINT",
        "timestamp": "DATETIME(6)",
        "uuid": "CHAR(36)",
        "float": "DOUBLE",
        "bool": "TINYINT",
    }
    collation = "utf8mb4_0900_bin"
    inserted = "DUAL WHERE ROW_COUNT() = 1"

    def cursor(self, connection: BaseDatabaseWrapper) -> CursorWrapper:
        connection.ensure_connection()
        connection.connection.encoders[Literal] = lambda literal, _encoders: literal.sql
        return connection.cursor()

    def parameters(self, rows: Rows) -> Params:
        # Hexadecimal: safe under every sql_mode, and the driver escapes a megabyte four times as slowly.
        return [Literal(b"_utf8mb4 x'%b'" % hexlify(msgspec.json.encode(rows)))]

    def source(self, columns: Sequence[Column], alias: str) -> str:
        unpacked = ", ".join(
            f"{self.quoted(column.name)} {self.type_of(column)} PATH '$[{position}]'"
            for position, column in enumerate(columns)
        )
        return f"JSON_TABLE(%s, '$[*]' COLUMNS ({unpacked})) AS {alias}"

    def incoming_parameters(self, rows: Rows) -> Params:
        return [Literal(rows_of_literals(rows, self.row_word))]

    def incoming(self, columns: Sequence[Column], alias: str) -> str:
        """A table of literals, which the server parses faster than it takes JSON apart (docs/adr/0016)."""
        return f"(VALUES %s) AS {alias} ({self.listed([column.name for column in columns])})"

    def update_by_key(self, change: Update) -> str:
        assignments, joined, where = self._update_parts(change)
        table = f"{self.quoted(change.table)}{self.found_by(change.primary)}"
        sql = (
            f"UPDATE {self.source(change.columns, 'r')} STRAIGHT_JOIN {table} "
            f"ON {' AND '.join(joined)} SET {assignments}"
        )
        return sql + (f" WHERE {' AND '.join(where)}" if where else "")

    @staticmethod
    def found_by(primary: bool) -> str:
        # Statistics lag behind a table that fills: once MySQL walked all pending orders for each id of a claim.
        return " FORCE INDEX (PRIMARY)" if primary else ""

    def update_parameters(self, constants: Params, rows: Rows, prune: Params) -> Params:
        return [*self.parameters(rows), *constants, *prune]

    def type_of(self, column: Column) -> str:
        if column.kind in self.casts:
            return self.casts[column.kind]
        if column.kind in ("long", "json"):
            return "LONGTEXT"
        # The column's own collation, else no index serves the join.
        return f"VARCHAR({LONGEST_TEXT}) CHARACTER SET utf8mb4 COLLATE {self.collation}"

    def on_conflict(self, table: str, key: Sequence[str], update: Mapping[str, str], guard: str, token: str) -> str:
        if not update:
            return f" ON DUPLICATE KEY UPDATE {self.quoted(key[0])} = {self.old(table, key[0])}"
        # Assignments run from left to right: the token goes first and decides for all the others.
        chosen = dict(update)
        if guard:
            incoming = chosen.pop(token)
            applied = f"{self.old(table, token)} = {incoming}"
            chosen = {name: f"IF({applied}, {sql}, {self.old(table, name)})" for name, sql in chosen.items()}
            chosen = {token: f"IF({guard}, {incoming}, {self.old(table, token)})", **chosen}
        assignments = ", ".join(f"{self.quoted(name)} = {sql}" for name, sql in chosen.items())
        return f" ON DUPLICATE KEY UPDATE {assignments}"

    # A new key counts as one row and a changed one as two. So each statement inserts only where the one before it did;
    # looking the key up instead cost as much as inserting a message.
    def if_known(self, unique: Sequence[str], token: str) -> str:
        return f"ON DUPLICATE KEY UPDATE {self.quoted(token)} = {self.quoted(token)} + 1"

    def execute_all(self, cursor: CursorWrapper, statements: Sequence[str], values: Values) -> None:
        """In one round trip."""
        cursor.execute("; ".join(statements), values)
        for _ in statements[1:]:
            cursor.nextset()

    def new(self, name: str) -> str:
        return f"VALUES({self.quoted(name)})"


class MariaDB(MySQL):
    """As MySQL, with RETURNING (which also returns the rows that were left alone)."""

    name = "mariadb"
    returns_rows = True
    returns_only_changed = False
    collation = "utf8mb4_nopad_bin"
    row_word = ""

    def incoming(self, columns: Sequence[Column], alias: str) -> str:
        names = self.listed([column.name for column in columns])
        return f"(WITH given ({names}) AS (VALUES %s) SELECT * FROM given) AS {alias}"


# -- Which one a connection has ------------------------------------------------------------------------------
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (PostgreSQL(), SQLite(), MySQL(), MariaDB())}

_known: dict[str, Dialect] = {}


def dialect_for(connection: BaseDatabaseWrapper) -> Dialect:
    """The dialect of an open connection."""
    mariadb = getattr(connection, "mysql_is_mariadb", False)  # Django calls both MySQL
    dialect = _known[connection.alias] = DIALECTS["mariadb" if mariadb else connection.vendor]
    return dialect


def known_dialect(alias: str) -> Dialect | None:
    """The dialect that connections of this name had last; None before the first one."""
    return _known.get(alias)
