"""Django's backend for SQLite, whose statements are counted in the metrics."""

from __future__ import annotations

from functools import cache
from typing import Any

from django_prometheus.db.backends.sqlite3.base import DatabaseWrapper as MeasuredWrapper
from django_prometheus.db.common import ExportingCursorWrapper

measured_cursor = cache(ExportingCursorWrapper)  # as for MySQL: the library makes a class for each statement


class SQLiteWrapper(MeasuredWrapper):
    """As the library's, with one class of cursors."""

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=measured_cursor(self.CURSOR_CLASS, self.alias, self.vendor))


DatabaseWrapper = SQLiteWrapper  # the name that Django looks for
