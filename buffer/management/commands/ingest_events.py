"""Kafka → event buffer."""

from argparse import ArgumentParser
from threading import Event

from buffer.workers import ingest
from config.processes.worker import Options, ReaderCommand


class Command(ReaderCommand):
    help = (
        "Read the topics of STREAMS into the event buffer. Start as many as the topics have partitions; "
        "offsets are committed only after the database has committed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--stream", action="append", metavar="NAME", help="only this stream (repeatable)")

    def work(self, stop: Event, options: Options) -> None:
        reset, once, seconds = options["accept_reset"], options["once"], options["until_idle"]
        ingest(options["stream"], stop, accept_reset=reset, once=once, until_idle=seconds)
