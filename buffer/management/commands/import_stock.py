"""Opening stock from a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from buffer.ledger.stocktake import import_stock
from config.environment.env import BadSetting
from config.processes.commands import VisibleCommand

SHOWN = 20


class Command(VisibleCommand):
    help = (
        "Open the stocks of a CSV file (stock_id,item,location,quantity); each is a movement of the ledger. "
        "A file with a line that cannot be taken changes nothing; the same file again changes nothing either."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.csv")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")

    def handle(self, *args: object, **options: Any) -> None:
        try:
            imported = import_stock(options["file"], dry_run=options["dry_run"], say=self.stdout.write)
        except BadSetting as error:
            raise CommandError(str(error)) from error
        for reason in imported.refused[:SHOWN]:
            self.stderr.write(reason)
        if imported.refused:
            raise CommandError(f"{options['file']}: {len(imported.refused)} lines are refused")
        verb = "would be opened" if options["dry_run"] else "opened"
        self.stdout.write(f"{imported.opened:,} stocks {verb}, {imported.known:,} were there already")
