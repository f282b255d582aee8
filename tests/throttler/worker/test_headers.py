"""Headers of a sender on every way to notifications-out: live, over the buffer, and back from a dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from config.admin.levers import Operator
from config.kafka import client, producer_internals, topic_name
from outbox.channels.handlers import Message
from outbox.channels.kafka import KafkaHandler
from outbox.letters import levers
from outbox.models import DeadLetter, OutboxMessage
from tests.throttler.worker.conftest import notification, records_of
from throttler.customers.models import Customer
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT

pytestmark = pytest.mark.django_db(transaction=True)
HEADERS = [
    ("a", b"1"), ("binary", b"\xff\x00\x01"), ("a", b"2"), ("empty", b""), ("null", None), ("text", "é東京".encode()),
    ("message_id", b"the sender's"), ("a", b"1"),
]  # fmt: skip
OURS = {"source", "replay_of", "event_type", "correlation_id", "traceparent"}


@pytest.fixture
def sent(topics: None) -> Any:
    """Put a value with all those headers into partition 0."""

    def put(value: bytes) -> None:
        producer = client.new_producer()
        future = producer_internals.send_record(producer, topic_name(INPUT), 0, b"k", value, HEADERS)
        producer.flush()
        future.get(timeout=30)
        producer.close()

    return put


def of_sender(topic: str) -> list[Any]:
    """The sender's headers of each record there."""
    return [[(name, value) for name, value in record.headers if name not in OURS] for record in records_of(topic)]


def relay() -> None:
    """As the outbox does it."""
    for row in OutboxMessage.objects.filter(state="pending"):
        message = Message(*(getattr(row, name) for name in Message._fields))
        (outcome,) = KafkaHandler().send([message])
        assert outcome.ok, outcome
        OutboxMessage.objects.filter(pk=row.pk).update(state="sent", receipt=outcome.receipt)


def requeue() -> None:
    letter = DeadLetter.objects.get(status="open")
    assert levers.pull("requeue", [letter.pk], Operator("me"), "the setting was wrong").acted == 1
    relay()


def test_live_over_the_buffer_and_expired_in_it_they_stay_as_they_are(sent, run, customer):
    for name in ("over", "old"):
        customer(name, "0/s")
    for value in (notification("live"), notification("over"), notification("old", ttl_seconds=1)):
        sent(value)
    run(until_idle=3)
    Customer.objects.update(rates="1000/s")
    run()
    assert (of_sender(OUTPUT), of_sender(EXPIRED)) == ([HEADERS, HEADERS], [HEADERS])


def test_from_a_dead_letter_they_come_back_as_they_were_however_often(sent, run, settings):
    most = settings.THROTTLER_MAX_MESSAGE_BYTES
    settings.THROTTLER_MAX_MESSAGE_BYTES = 10
    sent(notification("one"))
    run()
    for _ in range(2):
        settings.THROTTLER_MAX_MESSAGE_BYTES = most
        requeue()
        settings.THROTTLER_MAX_MESSAGE_BYTES = 10
        run()
    settings.THROTTLER_MAX_MESSAGE_BYTES = most
    requeue()
    run()
    assert of_sender(OUTPUT) == [HEADERS]
