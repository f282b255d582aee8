"""A bunch on its way to Kafka: to the real broker and to the embedded one."""

from __future__ import annotations

import json
import math

import pytest

from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.reader import Reader
from config.kafka.topics import create_topics
from tests.config.conftest import broker  # noqa: F401 (a fixture)
from throttler import api

BODY = {"recipients": ["ada", "bob", "eve"], "message": {"text": "hello"}, "ttl_seconds": None}


@pytest.fixture
def topic(broker, settings):  # noqa: F811
    """An empty notifications-in with a producer of its own."""
    if broker is None:
        settings.KAFKA_REPLICATION_FACTOR = 1
        settings.KAFKA_TOPICS = {api.TOPIC: settings.KAFKA_TOPICS[api.TOPIC]}
        create_topics()
    api.producer.cache_clear()
    yield topic_name(api.TOPIC)
    api.producer().close()
    api.producer.cache_clear()


@pytest.mark.django_db
def test_every_notification_arrives_under_its_customer(topic):
    ids = api.ids_of(1, "key", 3)
    api.send_bunch(api.split_bunch("acme", ids, BODY, database_now()), math.inf)
    with Reader(topic) as reader:
        records = [record for records in reader.batches() for record in records]
    assert {record.partition for record in records} == {records[0].partition}
    assert [record.key for record in records] == [b"acme"] * 3
    assert [json.loads(record.value)["notification_id"] for record in records] == ids
