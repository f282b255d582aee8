"""Customers and their rates from a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.environment.env import BadSetting
from throttler.customers.importing import import_customers


class Command(BaseCommand):
    help = (
        "Insert or change the customers of a CSV file (customer_id,rates,burst,ttl_seconds). "
        "A file with a line that cannot be taken changes nothing; the same file again changes nothing either."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.csv")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        say = self.stderr.write if self.stderr.isatty() else lambda text: None
        try:
            found = import_customers(options["file"], dry_run=options["dry_run"], say=say)
        except BadSetting as error:
            raise CommandError(str(error)) from error
        for reason in found.refused:
            self.stderr.write(reason)
        if found.refused:
            raise CommandError(f"{options['file']}: {len(found.refused)} lines are refused")
        would = "would be " if options["dry_run"] else ""
        self.stdout.write(f"{found.new:,} new, {found.changed:,} {would}changed, {found.unchanged:,} unchanged")
