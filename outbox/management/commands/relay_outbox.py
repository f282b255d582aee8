"""Outbox → channels, by polling."""

from argparse import ArgumentParser
from threading import Event

from config.processes.worker import Options, WorkerCommand
from outbox.workers.start import relay


class Command(WorkerCommand):
    help = (
        "Deliver due outbox messages: woken by commits on PostgreSQL, otherwise by polling. "
        "Any number may run side by side (on SQLite: one)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--channel", action="append", metavar="NAME", help="only this channel (repeatable)")

    def work(self, stop: Event, options: Options) -> None:
        relay(options["channel"], stop, once=options["once"], until_idle=options["until_idle"])
