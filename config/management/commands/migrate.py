"""Django's own command; says what has to stop and what it locks, and on MySQL and MariaDB goes on where a migration was interrupted."""

from typing import Any

from django.core.management.commands import migrate
from django.db import connections
from django.db.migrations import Migration

from config.database.mysql.schema import MigrationJournal
from config.database.tables import stopped_first, warnings


class Command(migrate.Command):
    connection: Any

    def handle(self, *args: object, **options: Any) -> None:
        self.connection = connections[options["database"]]
        if options["verbosity"] and not options["app_label"]:
            for heading, sentences in (
                ("Steps that the version before does not survive:", stopped_first(self.connection)),
                ("Steps on big tables:", warnings(self.connection)),
            ):
                if lines := "\n".join(f"  {sentence}" for sentence in sentences):
                    self.stdout.write(f"{self.style.MIGRATE_HEADING(heading)}\n{lines}")
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
