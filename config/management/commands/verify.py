"""Proves that nothing is missing and nothing is there twice."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.probes.verify import prove, render


class Command(BaseCommand):
    help = "Check the invariants of every flow in one snapshot; exit 1 and the offending rows when one fails."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="F", help="only this flow (buffer, …)")
        parser.add_argument("--json", action="store_true", help='print {"ok": …, "checks": […]}')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            proof = prove(options["flow"])
        except LookupError as error:
            raise CommandError(str(error.args[0])) from error
        self.stdout.write(render(proof, as_json=options["json"]))
        if not proof["ok"]:
            sys.exit(1)
