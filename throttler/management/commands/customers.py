"""The levers on throttled customers for a terminal, with the same audit."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.flows import Refusal
from throttler.customers.terminal import misuse, run

LEVERS = ["hold", "resume", "purge", "set-rate", "set-ttl", "set-weight"]


class Command(BaseCommand):
    help = "List or show customers, or change rate, lifetime, weight, hold. Every change needs a reason and is audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=["list", "show", *LEVERS])
        parser.add_argument("customer", nargs="?", default="", metavar="CUSTOMER")
        parser.add_argument("value", nargs="?", default="", metavar="RATES|SECONDS|WEIGHT")
        parser.add_argument("--burst", type=int, metavar="N", help="set-rate: of the shortest window")
        parser.add_argument("--reason", default="", help="why; kept in the operator's trail")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **given: Any) -> None:
        if fault := misuse(given["verb"], given["customer"], given["value"], given["burst"]):
            raise CommandError(fault, returncode=2)
        try:
            for line in run(given):
                self.stdout.write(line)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
