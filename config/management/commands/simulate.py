"""Sends plausible traffic into Kafka."""

from argparse import ArgumentParser
from pathlib import Path
from threading import Event

from django.core.management.base import CommandError

from config.demo.simulation import Account, count_argument, rate_argument, simulate
from config.processes.worker import Options, WorkerCommand


class Command(WorkerCommand):
    not_missed_with = ("rate",)  # always: nobody waits for it
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
        parser.add_argument("--account", type=Path, metavar="FILE", help="keep in FILE, as it goes, how many were sent")
        # Not METRICS_PORT, which is that of a worker on the same machine.
        parser.add_argument("--metrics-port", type=int, default=0, metavar="P", help="serve /metrics on port P")

    def work(self, stop: Event, options: Options) -> None:
        account = Account(options["account"])
        simulate(stop, options["flow"], options["rate"], options["count"], options["seed"], account)
        self.stdout.write(f"{account.sent.total()} records sent")
        if options["count"] is not None and account.failed:
            # Without a number the traffic is the point, and it goes on beside a broker that comes and goes.
            raise CommandError(f"{account.failed} of {account.begun.total()} samples did not get in")
