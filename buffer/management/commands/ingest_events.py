"""Kafka → event buffer."""

from argparse import ArgumentParser
from threading import Event
from typing import Any

from buffer.workers import ingest
from config.processes.command import WorkerCommand


class Command(WorkerCommand):
    help = (
        "Read the topics of STREAMS into the event buffer. Start as many as the topics have partitions; "
        "offsets are committed only after the database has committed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--stream", action="append", metavar="NAME", help="only this stream (repeatable)")
        parser.add_argument(
            "--accept-reset", action="store_true",
            help="a topic was created again, or part of its log is gone: go on from its beginning",
        )  # fmt: skip

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        ingest(
            options["stream"], stop, accept_reset=options["accept_reset"], once=options["once"],
            until_idle=options["until_idle"],
        )  # fmt: skip
