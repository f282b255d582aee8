"""Customers and their rates from a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from config.admin.humanize import plural
from config.admin.levers import operator_of_terminal
from config.environment.env import BadSetting
from config.processes.commands import VisibleCommand
from throttler.customers.commands import import_customers


class Command(VisibleCommand):
    help = (
        "Insert or change the customers of a CSV file (customer_id,rates,burst,ttl_seconds). "
        "A file with a line that cannot be taken changes nothing; the same file again changes nothing either."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.csv")
        parser.add_argument("--reason", default="", help="why; kept in the operator's trail")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")

    def handle(self, *args: object, **options: Any) -> None:
        say = self.stderr.write if self.stderr.isatty() else lambda text: None
        operator, how = operator_of_terminal(), {"reason": options["reason"], "dry_run": options["dry_run"]}
        try:
            rows = import_customers(options["file"], operator, say=say, **how)
        except BadSetting as error:
            raise CommandError(str(error)) from error
        for reason in rows.refused:
            self.stderr.write(reason)
        if rows.refused:
            refused = plural(len(rows.refused), "line is refused", "lines are refused")
            raise CommandError(f"{options['file']}: {refused}; nothing was changed")
        self.stdout.write(f"{rows}; nothing was changed, as this is a dry run" if options["dry_run"] else str(rows))
