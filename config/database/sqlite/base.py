"""Django's backend for SQLite, whose statements are counted in the metrics."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django_prometheus.db.backends.sqlite3.base import DatabaseWrapper as MeasuredWrapper
from django_prometheus.db.common import ExportingCursorWrapper


class SQLiteWrapper(MeasuredWrapper):
    """As the library's, but with one class of cursors a connection; see `config/database/mysql/base.py`."""

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=self.measured_cursor)

    @cached_property
    def measured_cursor(self) -> type:
        return ExportingCursorWrapper(self.CURSOR_CLASS, self.alias, self.vendor)


DatabaseWrapper = SQLiteWrapper  # the name that Django looks for
