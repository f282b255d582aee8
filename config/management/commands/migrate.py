"""Django's own command; on MySQL and MariaDB a migration that was interrupted goes on where it was."""

from typing import Any

from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations import Migration

from config.database.mysql.schema import MigrationJournal


class Command(migrate.Command):
    connection: Any

    def handle(self, *args: object, **options: Any) -> None:
        self.connection = connections[options["database"]]
        super().handle(*args, **options)
        if journal := getattr(self.connection, "journal", None):
            journal.remove()
            self.connection.journal = None

    def migration_progress_callback(self, action: str, migration: Migration | None = None, fake: bool = False) -> None:
        super().migration_progress_callback(action, migration, fake)
        if self.connection.vendor != "mysql":
            return
        if action == "apply_start":
            self.connection.journal = self.connection.journal or MigrationJournal(self.connection)
            self.connection.journal.open(str(migration))
        elif action == "apply_success":
            self.connection.journal.close()
