"""Which rows are asked to be locked: on SQLite, which locks the whole database, no statement says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.db.models.sql.compiler import SQLCompiler


@contextmanager
def locks_asked_for() -> Iterator[list[str]]:
    """Meanwhile, the tables of the ORM's SELECTs … FOR UPDATE, in their order; with `?` where locked rows are skipped."""
    asked: list[str] = []
    run = SQLCompiler.execute_sql

    def note(self: SQLCompiler, *given: Any, **named: Any) -> Any:
        if self.query.select_for_update:
            asked.append(self.query.model._meta.db_table + "?" * self.query.select_for_update_skip_locked)
        return run(self, *given, **named)

    with patch.object(SQLCompiler, "execute_sql", note):
        yield asked
