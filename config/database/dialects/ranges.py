"""New rows with bytes in them, and the first rows of many ranges at once: how each database says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


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

    def insert(self, rows: Sequence[Sequence[Any]]) -> None:
        """Rows in the order of `columns`; those whose key is known are left alone."""
        holders = f"({', '.join(['%s'] * len(self.table.columns))})"
        values = ", ".join([holders] * len(rows))
        sql = f"INSERT INTO {self.name} ({self.listed}) VALUES {values} {self.if_known()}"
        with self.connection.cursor() as cursor:
            cursor.execute(sql, [value for row in rows for value in row])

    def if_known(self) -> str:
        return f"ON CONFLICT ({self.keys}) DO NOTHING"

    def first_rows(self, ranges: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """The first `limit` rows of each range by position, in one query."""
        one = (
            f"SELECT {self.listed} FROM {self.name}{self.hint} WHERE {self.lane} "
            f"AND {self.position} > %s AND {self.position} <= %s AND {self.day} >= %s "
            f"ORDER BY {self.position}, {self.day} LIMIT %s"
        )
        sql = " UNION ALL ".join([self.part.format(one)] * len(ranges))
        with self.connection.cursor() as cursor:
            cursor.execute(sql, [value for found in ranges for value in found])
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

    def insert(self, rows: Sequence[Sequence[Any]]) -> None:
        arrays = ", ".join(f"%s::{kind}[]" for _, kind in self.table.columns)
        sql = f"INSERT INTO {self.name} ({self.listed}) SELECT * FROM unnest({arrays}) {self.if_known()}"
        self._run(sql, [list(column) for column in zip(*rows, strict=True)])

    def first_rows(self, ranges: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        quote = self.connection.ops.quote_name
        kinds = dict(self.table.columns)
        lane = [kinds[name] for name in self.table.lane]
        arrays = ", ".join(f"%s::{kind}[]" for kind in [*lane, "bigint", "bigint", "date", "int"])
        same = " AND ".join(f"t.{quote(name)} = r.l{place}" for place, name in enumerate(self.table.lane))
        names = ", ".join([*(f"l{place}" for place in range(len(lane))), "after", "upto", "since", "most"])
        sql = (
            f"SELECT f.* FROM unnest({arrays}) AS r ({names}) CROSS JOIN LATERAL "
            f"(SELECT {self.listed} FROM {self.name} t WHERE {same} AND t.{self.position} > r.after "
            f"AND t.{self.position} <= r.upto AND t.{self.day} >= r.since "
            f"ORDER BY t.{self.position}, t.{self.day} LIMIT r.most) f"
        )
        return self._run(sql, [list(column) for column in zip(*ranges, strict=True)], reads=True)

    def _run(self, sql: str, params: list[Any], reads: bool = False) -> list[tuple[Any, ...]]:
        from config.database.dialects import dialect_for  # the package imports its own parts

        with dialect_for(self.connection).cursor(self.connection) as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if reads else []


RANGES: dict[str, type[Ranges]] = {"sqlite": Ranges, "mysql": MySQLRanges, "postgresql": PostgreSQLRanges}


def ranges_of(connection: BaseDatabaseWrapper, table: RangeTable) -> Ranges:
    """The statements of that database for that table."""
    return RANGES[connection.vendor](connection, table)
