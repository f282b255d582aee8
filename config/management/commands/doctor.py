"""Says in one line each what is right and what is wrong."""

import sys
from argparse import ArgumentParser

from config.probes.doctor import examine, render
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "Look at settings, database, clock, partitions, flows, broker and topics; exit 1 when something is wrong."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help='print {"ok": …, "findings": […]}')

    def handle(self, *, json: bool, **_: object) -> None:
        findings = examine()
        self.stdout.write(render(findings, as_json=json))
        if not all(finding.ok for finding in findings):
            sys.exit(1)
