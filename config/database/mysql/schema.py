"""A migration that was cut in the middle goes on: MySQL and MariaDB undo no DDL.

Before each statement a journal in the database says that the migration has come to it. When the migration runs again,
its statements run again, and those in the journal may find that they are done. All others may not: a table that
somebody else made stays an error. `migrate` imports this file also where the driver of MySQL is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.ddl_references import Statement
from django.db.backends.mysql.schema import DatabaseSchemaEditor
from django.db.models import Model

from config.database.queries import Params, Row
from config.database.retry import code_of

TABLE = "spillway_migration_under_way"
# A table, a column, an index, a constraint is there, or is not there any more.
DONE = {1005, 1050, 1051, 1054, 1060, 1061, 1068, 1072, 1091, 1146, 1826, 3822}
# Of the client: nobody knows how far the server came.
LOST = range(2000, 3000)


class MigrationJournal:
    """The statements to which a migration has come, on a session of its own: each is kept before it begins."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.session = connection.copy()
        self.migration = ""
        self.begun: set[str] = set()
        self._execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (id bigint AUTO_INCREMENT PRIMARY KEY, "
                      "migration varchar(255) NOT NULL, statement longtext NOT NULL)")  # fmt: skip

    def open(self, migration: str) -> None:
        rows = self._execute(f"SELECT statement FROM {TABLE} WHERE migration = %s", migration)  # noqa: S608
        self.migration, self.begun = migration, {statement for (statement,) in rows}

    def close(self) -> None:
        self._execute(f"DELETE FROM {TABLE} WHERE migration = %s", self.migration)  # noqa: S608

    def remove(self) -> None:
        self._execute(f"DROP TABLE {TABLE}")
        self.session.close()

    def begin(self, statement: str) -> None:
        if statement not in self.begun:
            sql = f"INSERT INTO {TABLE} (migration, statement) VALUES (%s, %s)"  # noqa: S608
            self._execute(sql, self.migration, statement)

    def take_back(self, statement: str) -> None:
        """The server has refused it, so it has changed nothing."""
        sql = f"DELETE FROM {TABLE} WHERE migration = %s AND statement = %s"  # noqa: S608
        self._execute(sql, self.migration, statement)

    def _execute(self, sql: str, *params: str) -> list[Row]:
        with self.session.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall()) if cursor.description else []


class JournaledSchemaEditor(DatabaseSchemaEditor):
    """Django's; while the connection has a journal, it keeps that."""

    def _constraint_names(self, model: type[Model], column_names: Sequence[str] | None = None, **of: Any) -> list[str]:
        """Of foreign keys also those that the run that was cut has dropped: Django makes only those anew that it drops."""
        names: list[str] = super()._constraint_names(model, column_names, **of)  # type: ignore[misc]
        journal: MigrationJournal | None = self.connection.journal  # type: ignore[attr-defined]
        if journal is None or not of.get("foreign_key") or not column_names:
            return names
        table, column = model._meta.db_table, column_names[0]
        drop = re.compile(rf"ALTER TABLE `{table}` DROP FOREIGN KEY `({table}_{column}_\w+)`")
        dropped = [match[1] for statement in sorted(journal.begun) if (match := drop.match(statement))]
        return list(dict.fromkeys([*names, *dropped]))

    def execute(self, sql: str | Statement, params: Params | None = ()) -> None:
        journal: MigrationJournal | None = self.connection.journal  # type: ignore[attr-defined]
        if journal is None or self.collect_sql:
            super().execute(sql, params)
            return
        statement = f"{sql} {params or ''}"
        journal.begin(statement)
        try:
            super().execute(sql, params)
        except DatabaseError as error:
            code = code_of(error)
            if statement in journal.begun:
                if code in DONE:
                    return
            elif code not in LOST:
                journal.take_back(statement)
            raise
