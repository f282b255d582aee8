"""create_token: an API token, printed once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from config.admin.levers import operator_of_terminal
from config.processes.commands import VisibleCommand
from notifications.api.tokens import end_of, issue


class Command(VisibleCommand):
    help = "Make an API token and print it. It is stored as a hash: this is the only time it can be read."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the program or team that uses it")
        parser.add_argument("--customer", default="", help="the throttler customer it sends for; it sees no orders")
        parser.add_argument("--channels", default="", help="it promises messages for these: email,kafka; no orders")
        parser.add_argument("--rate", type=float, help="requests a second; 0 is unlimited (API_RATE_PER_SECOND)")
        words = "the last day or moment on which it is valid, UTC: 2027-01-31 or 2027-01-31T12:00"
        parser.add_argument("--expires", metavar="WHEN", help=words)

    def handle(self, *args: object, **options: Any) -> None:
        operator = operator_of_terminal()
        try:
            until = end_of(options["expires"]) if options["expires"] else None
            more = {"customer_id": options["customer"], "channels": options["channels"], "rate": options["rate"]}
            _token, text = issue(options["name"], operator, expires_at=until, **more)
        except ValueError as why:
            raise CommandError(str(why)) from None
        self.stdout.write(text)
