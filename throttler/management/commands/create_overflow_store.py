"""The keyspace and the table of the overflow store in Cassandra."""

from argparse import ArgumentParser

from django.core.management.base import CommandError
from django.db import DatabaseError

from config.processes.commands import VisibleCommand
from throttler.overflow import store_of_settings


class Command(VisibleCommand):
    help = "Make the keyspace and the table of THROTTLER_STORE=cassandra; what is there stays as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="print the CQL, change nothing")

    def handle(self, *args: object, **options: object) -> None:
        store = store_of_settings()
        statements = store.ensure()
        if not statements:
            self.stdout.write("THROTTLER_STORE=django: `migrate` makes the table; there is nothing else to make")
        elif options["dry_run"]:
            self.stdout.write("\n".join(f"{statement};" for statement in statements))
        else:
            try:
                store.create()
            except DatabaseError as error:
                raise CommandError(str(error)) from error
            self.stdout.write("the overflow store is there")
