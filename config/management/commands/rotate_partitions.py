"""Make the partitions that are needed soon, drop those that nobody needs any more, and say why."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from config.database.retry import needs_migrate
from config.database.tables import require_tables
from config.processes.beat import rotate_and_sweep
from config.processes.commands import VisibleCommand
from config.telemetry.redaction import one_line


class Command(VisibleCommand):
    help = "Make the partitions that are needed soon, drop those that nobody needs any more, and say why."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
        parser.add_argument("--no-drop", action="store_true", help="only make what is missing")

    def handle(self, *, dry_run: bool, no_drop: bool, **_: object) -> None:
        require_tables()
        try:
            plans, swept = rotate_and_sweep(dry_run=dry_run, no_drop=no_drop)
        except DatabaseError as error:
            if needs_migrate(error):
                raise
            raise CommandError(f"the database refuses: {one_line(error)}") from error
        for plan in plans:
            self.stdout.write(str(plan))
        if swept:
            self.stdout.write(f"{swept} rows outside of partitions outlived their retention and were deleted")
        if failures := [line for plan in plans for line in plan.failures]:
            raise CommandError("; ".join(failures))
