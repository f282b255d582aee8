"""create_token: an API token, printed once."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from notifications.api.tokens import issue
from outbox.bookkeeping.audit import Operator


class Command(BaseCommand):
    help = "Make an API token and print it. It is stored as a hash: this is the only time it can be read."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the program or team that uses it")
        parser.add_argument("--customer", default="", help="the throttler customer it sends for; it sees no orders")
        parser.add_argument("--rate", type=float, help="requests a second; 0 is unlimited (API_RATE_PER_SECOND)")

    def handle(self, *args: Any, **options: Any) -> None:
        operator = Operator(f"{getpass.getuser()}, by command")
        try:
            _token, text = issue(options["name"], operator, customer_id=options["customer"], rate=options["rate"])
        except ValueError as why:
            raise CommandError(str(why)) from None
        self.stdout.write(text)
