"""Every worker, beat and the web server under one supervisor."""

from argparse import ArgumentParser
from threading import Event
from typing import Any

from django.core.management.base import CommandError

from config.demo.run import run_demo
from config.processes.command import WorkerCommand
from config.processes.platform import run_platform


class Command(WorkerCommand):
    help = (
        "Start every worker, beat and the web server, restart what dies, stop on Ctrl-C. With --demo: on a fresh "
        "SQLite database and an embedded broker, with sample traffic and short timings (what `make run` does)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo", action="store_true", help="own database, own broker, sample traffic")
        parser.add_argument("--for", type=float, dest="seconds", metavar="S", help="demo: end after about S seconds")
        parser.add_argument("--rate", type=float, default=25, metavar="N", help="demo: records a second (default 25)")
        parser.add_argument("--port", type=int, default=8000, metavar="P", help="of the web server (default 8000)")
        parser.set_defaults(metrics_port=0)

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        if not options["demo"]:
            run_platform(stop, options["port"])
        elif not run_demo(stop, self.stdout.write, options):
            raise CommandError("the run did not add up: see above, and the logs in var/demo/logs")
