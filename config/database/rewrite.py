"""One UPDATE for many rows, each with values of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models

from config.database.dialects import BOUNDS, Update, dialect_for
from config.database.upsert import Column, Constant, Row


@dataclass
class Rewrite:
    """`UPDATE … SET` of many rows by key, each with values of its own, in one statement.

    `rows` hold the key columns and then the changed ones. `guard` is SQL over `old.x` and `new.x`.
    """

    model: type[models.Model]
    key: Sequence[Column]
    changes: Sequence[Column]
    constants: Sequence[Constant] = ()
    fixed: Sequence[str] = ()
    guard: str = ""
    prune: str = ""
    span: str = ""  # instead of `prune`: the key column that partitions, bounded by the rows' extremes
    using: str = DEFAULT_DB_ALIAS

    def run(
        self, rows: Sequence[Row], constants: Mapping[str, Any] | None = None, prune: Sequence[Any] = ()
    ) -> int:
        """Change `rows`; `constants` also holds the values of the `fixed` columns, which are part of the key;
        `prune` lists the partition column's values. Returns how many rows matched."""
        if not rows:
            return 0
        if self.span:
            place = [column.name for column in self.key].index(self.span)
            prune = [min(row[place] for row in rows), max(row[place] for row in rows)]
        connection = connections[self.using]
        dialect = dialect_for(connection)
        values = constants or {}
        sql = dialect.update_by_key(self._change(BOUNDS if self.span else len(prune)))
        ordered = [
            connection.ops.adapt_datetimefield_value(values[constant.name])
            if constant.kind == "timestamp"
            else values[constant.name]
            for constant in self.constants
        ]
        with dialect.cursor(connection) as cursor:
            cursor.execute(
                sql,
                dialect.update_parameters(ordered, rows, [*[values[name] for name in self.fixed], *prune]),
            )
            return int(cursor.rowcount)

    def _change(self, count: int) -> Update:
        meta = self.model._meta
        return Update(
            meta.db_table, self.key, self.changes, self.constants, self.fixed, self.guard,
            self.span or self.prune, count, primary=self.key[0].name == meta.pk.column,
        )  # fmt: skip
