"""Django's backend for MySQL and MariaDB: no session holds its locks for ever, and no cut migration stays half-way.

A session that does nothing inside a transaction for too long is ended by the server, which frees its locks.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django_prometheus.db.backends.mysql.base import DatabaseWrapper as MeasuredWrapper
from django_prometheus.db.common import ExportingCursorWrapper

from config.database.mysql.schema import JournaledSchemaEditor, MigrationJournal

# The library makes a class for each cursor, and so for each statement: 15 µs of a processor, and garbage.
measured_cursor = cache(ExportingCursorWrapper)
BEGIN = "SET @wait_timeout_before = @@SESSION.wait_timeout, autocommit = 0, wait_timeout = %d"
END = "SET autocommit = 1, wait_timeout = COALESCE(CAST(@wait_timeout_before AS UNSIGNED), @@SESSION.wait_timeout)"


class DatabaseWrapper(MeasuredWrapper):
    """`OPTIONS` may have `idle_transaction_seconds`; without it, or with 0, a transaction stays open for hours."""

    SchemaEditorClass = JournaledSchemaEditor
    idle_transaction_seconds = 0
    journal: MigrationJournal | None = None  # of the `migrate` that runs

    def get_connection_params(self) -> dict[str, object]:
        params: dict[str, Any] = super().get_connection_params()
        self.idle_transaction_seconds = params.pop("idle_transaction_seconds", 0)
        return params

    def create_cursor(self, name: str | None = None) -> Any:
        return measured_cursor(self.CURSOR_CLASS, self.alias, self.vendor)(self.connection.cursor())

    def _set_autocommit(self, autocommit: bool) -> None:
        """MySQL knows no limit for transactions alone. The usual one is lowered in the statement that begins one,
        which is sent anyhow: sessions that wait for work outside of it keep theirs, and nothing is sent more often.
        """
        if not self.idle_transaction_seconds:
            super()._set_autocommit(autocommit)
            return
        with self.wrap_database_errors:
            if self.connection.get_autocommit() != autocommit:
                self.connection.query(END if autocommit else BEGIN % self.idle_transaction_seconds)
