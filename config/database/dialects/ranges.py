"""New rows with bytes in them, and the first rows of many ranges at once: how each database says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

from config.database.dialects.base import Row, Rows
from config.database.dialects.vendors import dialect_for


@dataclass(frozen=True)
class RangeTable:
    """A table whose key begins with `lane`, goes on with `position`, and ends with `day`.

    `columns` are (name, PostgreSQL type), those of the key first.
    """

    name: str
    columns: Sequence[tuple[str, str]]
    lane: Sequence[str]
    position: str
    day: str

    @property
    def key(self) -> list[str]:
        return [*self.lane, self.position, self.day]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]


class Ranges:
    """SQLite, and what all say alike. A range is (lane…, after, upto, day, limit)."""

    hint = ""
    part = "SELECT * FROM ({}) r"  # of a UNION: SQLite takes no ORDER BY in one, unless it is a query from a query

    def __init__(self, connection: BaseDatabaseWrapper, table: RangeTable) -> None:
        quote = connection.ops.quote_name
        self.connection = connection
        self.table = table
        self.name = quote(table.name)
        self.listed = ", ".join(map(quote, table.names))
        self.keys = ", ".join(map(quote, table.key))
        self.position, self.day = quote(table.position), quote(table.day)
        self.lane = " AND ".join(f"{quote(name)} = %s" for name in table.lane)

    def insert(self, rows: Rows) -> None:
        """Rows in the order of `columns`; those whose key is known are left alone."""
        holders = f"({', '.join(['%s'] * len(self.table.columns))})"
        values = ", ".join([holders] * len(rows))
        sql = f"INSERT INTO {self.name} ({self.listed}) VALUES {values} {self.if_known()}"
        with self.connection.cursor() as cursor:
            cursor.execute(sql, [value for row in rows for value in row])

    def if_known(self) -> str:
        return f"ON CONFLICT ({self.keys}) DO NOTHING"

    def first_rows(self, ranges: Rows) -> list[Row]:
        """The first `limit` rows of each range by position, in one query.

        Moments as the driver has them, or in microseconds since 1970.
        """
        query = (
            f"SELECT {self.listed} FROM {self.name}{self.hint} WHERE {self.lane} "
            f"AND {self.position} > %s AND {self.position} <= %s AND {self.day} >= %s "
            f"ORDER BY {self.position}, {self.day} LIMIT %s"
        )
        sql = " UNION ALL ".join([self.part.format(query)] * len(ranges))
        with self.connection.cursor() as cursor:
            cursor.execute(sql, [value for values in ranges for value in values])
            return list(cursor.fetchall())


class MySQLRanges(Ranges):
    """Statistics lag behind a table that fills: the key is named."""

    hint = " FORCE INDEX (PRIMARY)"
    part = "({})"  # a query from a query is a temporary table each, and with a BLOB in it MariaDB writes it to disk

    def if_known(self) -> str:
        # Not IGNORE, which would also cut what is too long.
        first = self.connection.ops.quote_name(self.table.key[0])
        return f"ON DUPLICATE KEY UPDATE {first} = {self.name}.{first}"


class PostgreSQLRanges(Ranges):
    """Arrays, unpacked over there: one statement whatever the number of rows, planned in no time."""

    def insert(self, rows: Rows) -> None:
        arrays = ", ".join(f"%s::{kind}[]" for _, kind in self.table.columns)
        sql = f"INSERT INTO {self.name} ({self.listed}) SELECT * FROM unnest({arrays}) {self.if_known()}"
        with dialect_for(self.connection).cursor(self.connection) as cursor:
            cursor.execute(sql, [list(column) for column in zip(*rows, strict=True)])

    def first_rows(self, ranges: Rows) -> list[Row]:
        """From one key to another, not with a lane that is equal: of that the planner expects a handful of rows however
        many wait, and reads and sorts all of them for each page. The highest limit as a number: without one it expects
        so many rows of each range that it compiles the query. And planned anew: the table grows under an old plan.
        """
        kinds = dict(self.table.columns)
        lane = [f"l{place}" for place in range(len(self.table.lane))]
        types = [*(kinds[name] for name in self.table.lane), "bigint", "bigint", "date", "int"]
        arrays = ", ".join(f"%s::{kind}[]" for kind in types)
        places = ", ".join(f"r.{name}" for name in lane)
        keys = [f"t.{self.connection.ops.quote_name(name)}" for name in self.table.key]
        key, order = ", ".join(keys[:-1]), ", ".join(keys)
        columns = ", ".join(self._read_as(name, kind) for name, kind in self.table.columns)
        highest = max(limit for *_, limit in ranges)
        sql = (
            f"SELECT f.* FROM unnest({arrays}) AS r ({', '.join(lane)}, after, upto, since, most) CROSS JOIN LATERAL "
            f"(SELECT * FROM (SELECT {columns} FROM {self.name} t WHERE ({key}) > ({places}, r.after) "
            f"AND ({key}) <= ({places}, r.upto) AND t.{self.day} >= r.since ORDER BY {order} LIMIT {highest:d}) n "
            f"LIMIT r.most) f"
        )
        with self.connection.cursor() as cursor:
            cursor.execute(sql, [list(column) for column in zip(*ranges, strict=True)])
            return list(cursor.fetchall())

    def _read_as(self, name: str, kind: str) -> str:
        """Moments as whole microseconds: the driver takes them apart in Python."""
        column = f"t.{self.connection.ops.quote_name(name)}"
        return f"(EXTRACT(EPOCH FROM {column}) * 1000000)::bigint" if kind == "timestamptz" else column


RANGES: dict[str, type[Ranges]] = {"sqlite": Ranges, "mysql": MySQLRanges, "postgresql": PostgreSQLRanges}


def ranges_of(connection: BaseDatabaseWrapper, table: RangeTable) -> Ranges:
    """The statements of that database for that table."""
    return RANGES[connection.vendor](connection, table)
