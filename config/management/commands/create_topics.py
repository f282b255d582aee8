"""Creates the topics of the catalogue, and says what of existing ones is to be altered."""

from django.conf import settings
from django.core.management.base import CommandError

from config.kafka.client import KafkaError
from config.kafka.topics import create_topics
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = (
        "Create every topic of KAFKA_TOPICS that is missing, with its partitions and policy. Changes no existing one, "
        "but says (on stderr) how such a one differs, and what alters it."
    )
    requires_system_checks: list[str] = []

    def handle(self, **_: object) -> None:
        try:
            for topic, created in create_topics():
                self.stdout.write(f"{topic.name}: {'created' if created else 'exists'}")
                for difference in topic.differences:
                    self.stderr.write(f"{topic.name}: {difference}")
        except KafkaError as error:
            servers = ",".join(settings.KAFKA_BOOTSTRAP_SERVERS)
            raise CommandError(f"KAFKA_BOOTSTRAP_SERVERS={servers}: {error}") from error
