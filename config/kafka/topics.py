"""Topics by their contract names: prefix, creation, and what the broker says of them."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from config.kafka import client


def topic_name(name: str) -> str:
    """The name on the broker: every topic and group carries `KAFKA_TOPIC_PREFIX`."""
    return f"{settings.KAFKA_TOPIC_PREFIX}{name}"


@dataclass(frozen=True)
class TopicState:
    """One topic of the catalogue as the broker has it; `partitions` is 0 when it is missing."""

    name: str
    wanted: int
    partitions: int

    @property
    def verdict(self) -> str:
        if not self.partitions:
            return "missing: run create_topics"
        if self.partitions != self.wanted:
            return f"has {self.partitions} partitions, the catalogue says {self.wanted}"
        return "present"


def describe_topics() -> list[TopicState]:
    """The catalogue beside the broker's topics; raises KafkaError when no broker answers."""
    consumer = client.new_consumer(None)
    try:
        return [
            TopicState(
                topic_name(name),
                entry["partitions"],
                len(consumer.partitions_for_topic(topic_name(name)) or ()),
            )
            for name, entry in settings.KAFKA_TOPICS.items()
        ]
    finally:
        consumer.close()


def create_topics() -> list[tuple[str, bool]]:
    """Create what is missing; `(name, created)` for each topic. Existing ones are never changed."""
    admin = client.new_admin()
    try:
        existing = set(admin.list_topics())
        result = []
        for name, entry in settings.KAFKA_TOPICS.items():
            full = topic_name(name)
            created = full not in existing and _create(admin, full, entry)
            result.append((full, created))
        return result
    finally:
        admin.close()


def _create(admin: client.kafka.KafkaAdminClient, name: str, entry: dict) -> bool:
    specification = {
        "num_partitions": entry["partitions"],
        "replication_factor": settings.KAFKA_REPLICATION_FACTOR,
        "configs": entry.get("config", {}),
    }
    try:
        admin.create_topics({name: specification})
    except client.TopicAlreadyExistsError:
        return False  # another process was faster
    return True
