"""A broker with the throttler's topics, customers, and a whole throttler that runs in the test's own thread."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest

from config.database.clock import database_now
from config.kafka import client, topic_name
from config.kafka.reader import Reader
from config.kafka.wire_format import partition_of
from tests.config.conftest import broker, make_topic
from throttler.customers.models import Customer
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT
from throttler.worker.start import throttle

__all__ = ["broker", "make_topic"]
PARTITIONS = 2
NUMBERS = count()


def notification(customer: str, **more: Any) -> bytes:
    fields = {
        "notification_id": f"n{next(NUMBERS)}", "customer_id": customer, "recipient": "ada", "message": {"text": "hi"},
        "created_at": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    return msgspec.json.encode({**fields, **more})


@pytest.fixture
def topics(make_topic: Any, broker: Any, settings: Any) -> None:
    """Topics of two partitions; the embedded broker has no transactions."""
    settings.KAFKA_TRANSACTIONS = broker is None
    make_topic(INPUT, PARTITIONS)
    make_topic(OUTPUT, PARTITIONS, **{"message.timestamp.type": "LogAppendTime"} if broker is None else {})
    make_topic(EXPIRED, PARTITIONS)
    make_topic("notifications-changelog", PARTITIONS, **{"cleanup.policy": "compact"} if broker is None else {})


@pytest.fixture
def send(topics: None) -> Callable[..., None]:
    """Put values into the input, each where its customer belongs unless a partition is given."""

    def put(*values: bytes, partition: int | None = None, headers: Any = ()) -> None:
        producer = client.new_producer()
        sent = [
            producer.send(
                topic_name(INPUT), value=value, key=b"k", headers=list(headers),
                partition=home_of(value) if partition is None else partition,
            )
            for value in values
        ]  # fmt: skip
        producer.flush()
        assert all(future.succeeded() for future in sent)
        producer.close()

    return put


def home_of(value: bytes) -> int:
    try:
        return partition_of(msgspec.json.decode(value)["customer_id"].encode(), PARTITIONS)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return 0


@pytest.fixture
def run(topics: None) -> Callable[..., None]:
    """One throttler, to its end, and that of its last report: a process would not wait for a busy database."""

    def throttler(instance: str = "", **options: Any) -> None:
        try:
            throttle(threading.Event(), instance, **(options or {"until_idle": 0.5}))
        finally:
            for thread in threading.enumerate():
                if thread.name == "throttler-database-sync":
                    thread.join(30)

    return throttler


def records_of(topic: str) -> list[Any]:
    with Reader(topic_name(topic)) as reader:
        return [record for batch in reader.batches() for record in batch]


def ids_in(topic: str) -> dict[str, list[str]]:
    """Notification ids by customer, in the order of the topic."""
    found = defaultdict(list)
    for record in records_of(topic):
        value = msgspec.json.decode(record.value)
        found[value["customer_id"]].append(value["notification_id"])
    return dict(found)


def ids_of(values: list[bytes]) -> list[str]:
    return [msgspec.json.decode(value)["notification_id"] for value in values]


@pytest.fixture
def customer(db: None) -> Callable[..., Customer]:
    def make(customer_id: str, rates: str, burst: int | None = None, **more: Any) -> Customer:
        now = database_now()
        return Customer.objects.create(
            customer_id=customer_id, rates=rates, burst=burst, created_at=now, updated_at=now, **more
        )

    return make
