"""The embedded Kafka-compatible broker alone."""

from argparse import ArgumentParser
from collections.abc import Sequence

from django.core.management.base import CommandError

from config.demo.embedded_kafka import LIMITS, EmbeddedKafkaError, port_argument, project_topics, serve, topic_argument
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = (
        "Be a Kafka-compatible broker until SIGTERM or Ctrl-C: for the demo and for tests, never for data "
        "that matters. Prints its address on stdout, then what it cannot do on stderr."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=port_argument, metavar="P", help="on 127.0.0.1; default: any")
        parser.add_argument(
            "--topic", type=topic_argument, action="append", dest="topics", metavar="NAME:PARTITIONS",
            help="make this topic; may be repeated (default: every topic of the project)",
        )  # fmt: skip
        parser.add_argument("--with-parent", action="store_true", help="also stop when the parent is gone")

    def handle(
        self, *, port: int | None, topics: Sequence[tuple[str, int]] | None, with_parent: bool, **_: object
    ) -> None:
        try:
            serve(port, dict(topics) if topics else project_topics(), self._ready, with_parent=with_parent)
        except EmbeddedKafkaError as error:
            raise CommandError(str(error)) from error

    def _ready(self, address: str) -> None:
        self.stdout.write(f"embedded Kafka at {address}")
        self.stdout.flush()
        self.stderr.write("\n".join(f"- {limit}" for limit in LIMITS.values()), self.style.NOTICE)
