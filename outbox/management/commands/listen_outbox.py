"""Debezium → outbox: the CDC path."""

from argparse import ArgumentParser
from threading import Event
from typing import Any

from config.processes.command import WorkerCommand
from outbox.workers.start import listen


class Command(WorkerCommand):
    help = (
        "Deliver outbox messages as soon as Debezium reports their insert. Start as many as the topic has "
        "partitions; relay_outbox must run beside it, for what is retried and for when CDC is down."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        reset = "the topic was created again, or part of its log is gone: go on from its beginning"
        parser.add_argument("--accept-reset", action="store_true", help=reset)

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        listen(stop, accept_reset=options["accept_reset"], once=options["once"], until_idle=options["until_idle"])
