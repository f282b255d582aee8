"""The throttler's topics as a bench needs them: made under a prefix of their own, filled, read to the end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from django.conf import settings

from config.kafka.wire_format import partition_of
from tests.bench import databases
from tests.bench.events import PARTITIONS, administrator, delete, flush, new_producer, send

INPUT, OUTPUT, EXPIRED = "notifications-in", "notifications-out", "notifications-expired"
CHANGELOG = "notifications-changelog"
TOPICS = (INPUT, OUTPUT, EXPIRED, CHANGELOG)
TABLES = (
    "throttler_lane", "throttler_laneowner", "throttler_outputdivision", "throttler_lanepartition", "throttler_customerperiod",
    "throttler_overflowmessage", "throttler_customer", "outbox_watermark", "outbox_flowcounter", "outbox_flowminute",
)  # fmt: skip
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Topics:
    """Full names and broker; `environment` makes a worker use them."""

    servers: str
    prefix: str
    partitions: int = PARTITIONS

    @property
    def environment(self) -> dict[str, str]:
        return {"KAFKA_TOPIC_PREFIX": self.prefix}

    def name(self, topic: str) -> str:
        return self.prefix + topic


@contextmanager
def fresh(servers: str, partitions: int = PARTITIONS) -> Iterator[Topics]:
    """Empty topics and tables, as on the first day; the topics are deleted at the end."""
    topics = Topics(servers, f"{settings.KAFKA_TOPIC_PREFIX}{os.getpid()}-{next(NUMBERS)}-", partitions)
    for table in TABLES:
        databases.execute(f"TRUNCATE TABLE {table}")
    admin = administrator(servers)
    wanted = [
        NewTopic(topics.name(topic), partitions, 1, config=settings.KAFKA_TOPICS[topic]["config"]) for topic in TOPICS
    ]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    try:
        yield topics
    finally:
        delete(servers, topics.prefix)


def customers(number: int, partitions: int = PARTITIONS) -> list[tuple[str, int]]:
    """Names, each with its partition."""
    names = [f"customer-{index:06d}" for index in range(number)]
    return [(name, partition_of(name.encode(), partitions)) for name in names]


def value(customer: str, index: int, **more: Any) -> bytes:
    """A notification of about 300 bytes."""
    fields = {
        "notification_id": f"{index:032x}", "customer_id": customer, "recipient": f"user-{index % 9973}@example.com",
        "message": {"template": "receipt", "locale": "en", "text": "Thank you for your order. " * 4},
        "created_at": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    return msgspec.json.encode({**fields, **more})


class Source:
    """Produces to notifications-in, each record into its customer's partition."""

    def __init__(self, topics: Topics, **options: Any) -> None:
        self.topic = topics.name(INPUT)
        self.producer = new_producer(topics.servers, **options)

    def send(self, customer: str, partition: int, index: int, **more: Any) -> None:
        send(self.producer, self.topic, value(customer, index, **more), customer, partition)

    def flush(self) -> None:
        flush(self.producer)


def fill(topics: Topics, known: list[tuple[str, int]], records: int) -> None:
    """`records` notifications, the customers in turns."""
    source = Source(topics)
    for index, (customer, partition) in zip(range(records), itertools.cycle(known), strict=False):
        source.send(customer, partition, index)
    source.flush()


def records(topics: Topics, topic: str) -> Iterator[Any]:
    """Everything committed that is in a topic, by partition."""
    consumer = Consumer({
        "bootstrap.servers": topics.servers, "group.id": "bench-reader", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    name = topics.name(topic)
    consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for number in range(topics.partitions)])
    left = set(range(topics.partitions))
    try:
        while left:
            for message in consumer.consume(10_000, 0.05):
                if message.error():
                    left.discard(message.partition())
                else:
                    yield message
    finally:
        consumer.close()
