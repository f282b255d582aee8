"""The levers on throttled customers for a terminal, with the same audit."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from config.letters import Refusal
from config.processes.commands import VisibleCommand
from throttler.customers.commands import DOES, MEANING, misuse, run


class Command(VisibleCommand):
    help = (
        "List or show customers; change their rate, lifetime or weight; hold and resume them; purge: what is buffered "
        "now goes to notifications-expired. Every change needs a reason, is audited, and takes effect within 5 s."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=list(DOES), metavar="VERB", help=MEANING)
        parser.add_argument("customer", nargs="?", default="", metavar="CUSTOMER", help="its id; list takes none")
        words = "set-rate: such as 20/s;10000/day, 0/s is hold; set-ttl: seconds, or default; set-weight: 1 to 100"
        parser.add_argument("value", nargs="?", default="", metavar="RATES|SECONDS|WEIGHT", help=words)
        words = "set-rate: of the shortest window, or default; without it the customer's burst stays"
        parser.add_argument("--burst", metavar="N", help=words)
        parser.add_argument("--reason", default="", help="why; kept in the operator's trail")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: object, **given: Any) -> None:
        if fault := misuse(given["verb"], given["customer"], given["value"], given["burst"]):
            raise CommandError(fault, returncode=2)
        try:
            for line in run(given):
                self.stdout.write(line)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
