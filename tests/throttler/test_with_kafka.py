"""Beside a broker: the read model, a bunch on its way, and a dead letter on its way back to the input."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import msgspec
import pytest
from django.db import transaction
from kafka.partitioner.default import murmur2

from config.database.clock import database_now
from config.flows import letters_of
from config.kafka import client, topic_name
from config.kafka.reader import Reader
from outbox.channels.handlers import Message
from outbox.channels.kafka import KafkaHandler
from outbox.models import DeadLetter, OutboxMessage, Watermark
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.throttler.worked import Worked
from throttler import api
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.flow import Throttler

pytestmark = pytest.mark.django_db


@pytest.fixture
def topic(make_topic: Any) -> str:
    return make_topic(INPUT, 4)


def commit(topic: str, partition: int, offset: int) -> None:
    with closing(client.new_consumer(topic_name(GROUP))) as consumer:
        consumer.commit({client.TopicPartition(topic, partition): client.OffsetAndMetadata(offset, "", -1)})


def problems() -> list[str]:
    return [row["why"] for check in Throttler().verify_kafka() for row in check.rows]


def reported(topic: str, offset: int, topic_id: str = "") -> None:
    Watermark.objects.all().delete()
    with Reader(topic) as reader:
        place = {"group": topic_name(GROUP), "topic": topic, "partition": 0, "next_offset": offset}
        Watermark.objects.create(**place, topic_id=topic_id or reader.topic_id, updated_at=database_now())


def test_a_reported_position_is_compared_with_the_committed_one(topic):
    assert not problems()
    with closing(client.new_producer()) as producer:
        for _ in range(3):
            producer.send(topic, value=b"{}", partition=0)
    reported(topic, 2)
    assert problems() == ["mirrored, but not committed: the group or the log was changed by hand"]
    commit(topic, 0, 2)
    assert not problems()
    commit(topic, 0, 3)  # the read model follows a second later
    assert not problems()
    reported(topic, 2, "another")
    assert problems() == ["the topic was created again"]


def test_every_notification_of_a_bunch_arrives_under_its_customer(topic):
    api.producer.cache_clear()
    body = {"recipients": ["ada", "bob", "eve"], "message": {"text": "hello"}, "ttl_seconds": None}
    ids = api.ids_of(1, "key", 3)
    try:
        api.send_bunch(api.split_bunch("acme", ids, body, database_now()), math.inf)
    finally:
        api.producer().close()
        api.producer.cache_clear()
    records = records_in(topic)
    assert [(one.partition, one.key) for one in records] == [(right_partition("acme"), b"acme")] * 3
    assert [msgspec.json.decode(one.value)["notification_id"] for one in records] == ids


def records_in(topic: str) -> list[Any]:
    with Reader(topic) as reader:
        return [one for records in reader.batches() for one in records]


def test_a_requeued_letter_is_in_the_partition_of_its_customer(topic):
    worked = Worked()
    body = {
        "notification_id": "n",
        "customer_id": "acme",
        "recipient": "r",
        "message": {},
        "created_at": "2026-11-23T00:00:00Z",
    }
    value = msgspec.json.encode(body)
    worked.bury(2, value)
    letter = DeadLetter.objects.get(offset=2)
    with transaction.atomic():
        letters_of(letter.source).take_back([letter], database_now())
    row = OutboxMessage.objects.get()
    handler = KafkaHandler()
    try:
        (outcome,) = handler.send([Message(**{name: getattr(row, name, 0) for name in Message._fields})])
    finally:
        handler.producer.close()
    assert outcome.kind == "sent"
    (record,) = records_in(topic)
    assert (record.value, record.key) == (value, b"acme")
    assert record.partition == right_partition("acme")
    assert dict(record.headers)["replay_of"] == f"{topic}/0/2".encode()


def right_partition(customer: str) -> int:
    return (murmur2(customer.encode()) & 0x7FFFFFFF) % 4
