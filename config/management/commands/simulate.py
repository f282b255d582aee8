"""Sends plausible traffic into Kafka."""

from argparse import ArgumentParser
from threading import Event
from typing import Any

from django.core.management.base import CommandError

from config.demo.simulation import count_argument, rate_argument, simulate
from config.processes.command import WorkerCommand


class Command(WorkerCommand):
    help = "Produce sample records for every flow (or one): repeats, updates and now and then poison. Same seed, same data."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flow", metavar="F", help="only this flow")
        parser.add_argument(
            "--rate", type=rate_argument, default=20, metavar="N", help="records a second and flow (default 20)"
        )
        parser.add_argument(
            "--count", type=count_argument, metavar="N", help="stop after N records a flow (default: never)"
        )
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="which data (default 1)")
        parser.set_defaults(metrics_port=0)

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        found = simulate(stop, options["flow"], options["rate"], options["count"], options["seed"])
        self.stdout.write(f"{found.sent} records sent")
        if options["count"] is not None and found.failed:
            # Without a number the traffic is the point, and it goes on beside a broker that comes and goes.
            raise CommandError(f"{found.failed} of {found.made} samples did not get in")
