"""Creates the topics of the catalogue."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.kafka.client import KafkaError
from config.kafka.topics import create_topics


class Command(BaseCommand):
    help = (
        "Create every topic of KAFKA_TOPICS that is missing, with its partitions and policy. Changes no existing one."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            for name, created in create_topics():
                self.stdout.write(f"{name}: {'created' if created else 'exists'}")
        except KafkaError as error:
            servers = ",".join(settings.KAFKA_BOOTSTRAP_SERVERS)
            raise CommandError(f"KAFKA_BOOTSTRAP_SERVERS={servers}: {error}") from error
