"""Every worker, beat and the web server under one supervisor."""

from argparse import ArgumentParser
from threading import Event

from django.core.management.base import CommandError

from config.demo.embedded_kafka import port_argument
from config.demo.run import run_demo, seconds_argument
from config.processes.supervisor import run_platform
from config.processes.worker import Options, WorkerCommand, hang_up, watch_parent


class Command(WorkerCommand):
    help = (
        "Start every worker, beat and the web server, restart what dies, stop on Ctrl-C. With --demo: on a fresh "
        "SQLite database and an embedded broker, with sample traffic and short timings (what `make run` does)."
    )
    needs_tables = False  # the demo makes its own
    serves_metrics = False  # the ports are the children's
    not_missed_with = ("demo",)  # which has a database of its own
    ends_within = None

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--demo", action="store_true", help="own database, own broker, sample traffic")
        add("--for", type=seconds_argument, dest="seconds", metavar="S", help="demo: end after about S seconds")
        add("--rate", type=float, default=25, metavar="N", help="demo: records a second (default 25)")
        add("--port", type=port_argument, default=8000, metavar="P", help="of the web server (default 8000)")
        self.add_metrics_port(parser, "workers and beat serve /metrics on P, P+1, …: the log says which")
        add("--with-parent", action="store_true", help="also end, at once, when the parent is gone")

    def work(self, stop: Event, options: Options) -> None:
        if options["with_parent"]:
            watch_parent(hang_up)
        if not options["demo"]:
            run_platform(stop, options["port"], options["metrics_port"])
        elif not run_demo(stop, self.stdout, options):
            raise CommandError(f"the run did not add up: see above, and the logs in var/demo/{options['port']}/logs")
