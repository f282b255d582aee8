"""What went through, from the durable counters."""

import json
from argparse import ArgumentParser

from config.demo.run import status_line, waiting_line
from config.flows import flows
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "What went through every flow so far, from the durable counters."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--line", action="store_true", help="the most important ones, on one line")
        parser.add_argument("--waiting", action="store_true", help="only what is still in progress, on one line")
        parser.add_argument("--arrived", action="store_true", help="only how many samples have arrived, anybody's")
        parser.add_argument("--json", action="store_true", help="with --arrived: by flow")

    def handle(self, *args: object, **options: object) -> None:
        if options["arrived"]:
            arrived = {flow.name: flow.arrived() for flow in flows()}
            self.stdout.write(json.dumps(arrived) if options["json"] else str(sum(arrived.values())))
            return
        if options["line"] or options["waiting"]:
            self.stdout.write(status_line() if options["line"] else waiting_line())
            return
        figures = [figure for flow in flows() for figure in flow.summary()]
        width = max((len(name) for name, _ in figures), default=0)
        for name, number in figures:
            self.stdout.write(f"{name:{width}}{number:>10,}")
