"""Due buckets → batches → Kafka."""

from argparse import ArgumentParser
from threading import Event

from buffer.workers import flush
from config.processes.worker import Options, WorkerCommand


class Command(WorkerCommand):
    help = (
        "Cut batches from buckets that are idle, full or at their cap, and publish every claimed batch. "
        "Any number may run side by side (on SQLite: one)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--stream", action="append", metavar="NAME", help="only this stream (repeatable)")

    def work(self, stop: Event, options: Options) -> None:
        flush(options["stream"], stop, once=options["once"], until_idle=options["until_idle"])
