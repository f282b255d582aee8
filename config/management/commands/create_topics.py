"""Creates the topics of the catalogue, and says what of existing ones is to be altered."""

from collections.abc import Sequence

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from config.kafka.client import KafkaError, in_one_line
from config.kafka.topics import create_topics
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = (
        "Create every topic of KAFKA_TOPICS that is missing, with its partitions and policy. Changes no existing one, "
        "but says (on stderr) how such a one differs, and what alters it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "topics",
            nargs="*",
            metavar="TOPIC",
            help="only these, by their names in KAFKA_TOPICS, which have no prefix",
        )

    def handle(self, topics: Sequence[str], **_: object) -> None:
        if unknown := sorted(set(topics) - settings.KAFKA_TOPICS.keys()):
            raise CommandError(
                f"{', '.join(unknown)}: not in KAFKA_TOPICS, which has {', '.join(settings.KAFKA_TOPICS)}"
            )
        try:
            for topic, created in create_topics(topics):
                self.stdout.write(f"{topic.name}: {'created' if created else 'exists'}")
                for verdict in topic.verdicts if topic.partitions else ():
                    self.stderr.write(f"{topic.name}: {verdict}")
        except KafkaError as error:
            raise CommandError(in_one_line(error)) from error
