"""One UPDATE for many rows, each with values of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models

from config.database.dialects import BOUNDS, Update, dialect_for
from config.database.upsert import Row, adapted, columns_of


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

    def run(self, rows: Sequence[Row], constants: Mapping[str, Any] | None = None, prune: Sequence[Any] = ()) -> int:
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
