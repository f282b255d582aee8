"""An empty event buffer from Kafka again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from buffer.ingest.rebuild import rebuild
from config.kafka.client import KafkaError
from config.letters import Refusal
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = (
        "Read the input topics from their beginning into an empty event buffer. What stands in transfer-batches "
        "is marked as sent, so that no order goes out twice. Stop ingest_events and flush_buffer first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="read and count, change nothing")

    def handle(self, *args: object, **options: Any) -> None:
        try:
            for result in rebuild(self.stderr.write, dry_run=options["dry_run"]):
                self.stdout.write(
                    f"{result.stream}: {result.records} records, {result.sent} orders already sent, "
                    f"{result.pending} wait for a batch"
                )
        except (Refusal, KafkaError) as error:
            raise CommandError(str(error)) from error
