"""Outbox → channels, by polling."""

from argparse import ArgumentParser
from threading import Event
from typing import Any

from config.processes.worker import WorkerCommand
from outbox.workers.start import relay


class Command(WorkerCommand):
    help = (
        "Deliver due outbox messages: woken by commits on PostgreSQL, otherwise by polling. "
        "Any number may run side by side (on SQLite: one)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--channel", action="append", metavar="NAME", help="only this channel (repeatable)")

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        relay(options["channel"], stop, once=options["once"], until_idle=options["until_idle"])
