"""Proves that nothing is missing and nothing is there twice."""

import sys
from argparse import ArgumentParser

from django.core.management.base import CommandError

from config.flows import prove, render
from config.kafka.client import KafkaError, in_one_line
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "Check the invariants of every flow, and every stored payload; exit 1 and the offending rows when one fails."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="F", help="only this flow (buffer, …)")
        parser.add_argument("--kafka", action="store_true", help="also compare positions and sent batches with Kafka")
        parser.add_argument("--no-payloads", action="store_true", help="do not read and hash every stored payload")
        parser.add_argument("--json", action="store_true", help='print {"ok": …, "checks": […]}')

    def handle(self, *, flow: str | None, kafka: bool, no_payloads: bool, json: bool, **_: object) -> None:
        try:
            proof = prove(flow, payloads=not no_payloads, kafka=kafka)
        except LookupError as error:
            raise CommandError(str(error.args[0])) from error
        except KafkaError as error:
            raise CommandError(in_one_line(error)) from error
        self.stdout.write(render(proof, as_json=json))
        if not proof["ok"]:
            sys.exit(1)
