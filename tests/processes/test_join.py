"""What a consumer learns from the broker: its partitions in one join, and the ids of its topics."""

from __future__ import annotations

import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from buffer.events.models import BufferedEvent
from buffer.ingest.handler import Ingest
from buffer.streams import streams
from buffer.workers import ingest
from config.kafka import client, internals
from config.kafka.consumer import Consumer, consumer_of
from config.kafka.consumer.ports import ConsumerStopped
from outbox.bookkeeping.watermarks import Watermarks
from tests.conftest import order
from tests.crash.platform import Platform
from tests.crash.wire import REQUESTS
from tests.processes.conftest import PARTITIONS, Broker

pytestmark = pytest.mark.django_db(transaction=True)
on_kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


@pytest.fixture
def consumer(broker: Broker, stream: Any, settings: Any) -> Consumer:
    settings.KAFKA_BOOTSTRAP_SERVERS = broker.environment["KAFKA_BOOTSTRAP_SERVERS"].split(",")
    settings.KAFKA_TOPIC_PREFIX = broker.environment["KAFKA_TOPIC_PREFIX"]
    return consumer_of(Ingest(stream), Watermarks(), threading.Event())


@on_kafka
def test_a_consumer_that_starts_joins_once(broker: Broker, consumer: Consumer, monkeypatch: Any) -> None:
    """Asked for its topic's partitions before it subscribes, it would join, see new metadata, and join again."""
    given: list[int] = []
    assigned = consumer.member.assigned
    monkeypatch.setattr(consumer.member, "assigned", lambda tps: given.append(len(tps)) or assigned(tps))
    broker.send(*[order(f"A{n}", f"WH-{n}") for n in range(20)])
    consumer.run(until_idle=3.0)
    assert given == [PARTITIONS]
    assert BufferedEvent.objects.count() == 20


@on_kafka
def test_who_waits_for_its_partitions_is_not_idle(broker: Broker, consumer: Consumer) -> None:
    """The first poll lasts a second, whenever in it the partitions come; after a crash, a session timeout."""
    broker.send(*[order(f"A{n}", f"WH-{n}") for n in range(20)])
    consumer.run(until_idle=1.0)
    assert BufferedEvent.objects.count() == 20


@on_kafka
def test_a_session_timeout_that_the_broker_refuses_is_named(broker: Broker, workers: Platform) -> None:
    """It was taken for a broker that is away, and waited for without an end."""
    ended = workers.manage("ingest_events", "--once", check=False, KAFKA_SESSION_TIMEOUT_MS="1000")
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert line.startswith("CommandError: KAFKA_SESSION_TIMEOUT_MS=1000: ")
    assert "InvalidSessionTimeoutError" in line


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
@pytest.mark.parametrize("error", client.FATAL)
def test_what_polling_again_does_not_mend_ends_the_worker(consumer: Consumer, monkeypatch: Any, error: Any) -> None:
    def fail(**_: Any) -> None:
        raise error("refused")

    monkeypatch.setattr(internals, "keep_rejoining", lambda _: None)
    monkeypatch.setattr(internals, "unpark", lambda _: None)
    monkeypatch.setattr(internals, "join", lambda *_: None)
    consumer.member.consumer = SimpleNamespace(poll=fail)
    with pytest.raises(error):
        consumer.member.poll(0)


@on_kafka
def test_partitions_are_placed_as_soon_as_they_are_given(consumer: Consumer, monkeypatch: Any) -> None:
    """The client's poll() would wait out its time for records of partitions that are paused."""

    async def nothing() -> None:
        pass

    member = consumer.member
    monkeypatch.setattr(member, "holder", SimpleNamespace(finish=nothing, drop=lambda _: None))
    member.connect()
    member.subscribe()
    try:
        member.refuse_missing_topics()  # as a worker does: who knows no partitions joins with none, and once more
        began = time.monotonic()
        while not member.unplaced and time.monotonic() - began < 90:
            member.poll(60_000)
        assert member.unplaced
        assert time.monotonic() - began < 30, "it polled on"
    finally:
        member.leave()


@on_kafka
def test_a_missing_topic_is_named(consumer: Consumer) -> None:
    consumer.member.topics = [f"{consumer.topics[0]}-gone"]
    with pytest.raises(ConsumerStopped, match="-gone does not exist: create_topics makes it"):
        consumer.run(once=True)


def seen_id(broker: Broker) -> str:
    """As a process that starts now sees it."""
    reader = client.new_consumer(None)
    try:
        assert reader.partitions_for_topic(broker.wire.name(REQUESTS))
        return internals.topic_id_of(reader, broker.wire.name(REQUESTS))
    finally:
        reader.close(autocommit=False)


@on_kafka
def test_a_topic_that_is_created_again_has_another_id(broker: Broker, consumer: Consumer) -> None:
    first = seen_id(broker)
    assert uuid.UUID(first).int
    assert seen_id(broker) == first
    broker.wire.delete(REQUESTS)
    broker.wire.create(REQUESTS, PARTITIONS)
    assert uuid.UUID(seen_id(broker)).int
    assert seen_id(broker) != first


@on_kafka
def test_a_topic_nobody_knows_has_no_id(consumer: Consumer) -> None:
    reader = client.new_consumer(None)
    assert internals.topic_id_of(reader, "nowhere") == ""
    reader.close(autocommit=False)


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_a_broker_without_ids_says_nothing(broker: Broker, consumer: Consumer, settings: Any) -> None:
    settings.KAFKA_API_VERSION = (2, 3)
    assert seen_id(broker) == ""


@on_kafka
def test_two_streams_are_both_read_to_their_ends(broker: Broker, consumer: Consumer, settings: Any) -> None:
    """When the second member joined or the first one left, the other was between two assignments: it held no partition,
    and took that for having read everything. A restore relies on `--once`."""
    second = {"CLASS": "buffer.streams.TransferRequests", "TOPIC": "returns", "OUTPUT": "return-batches"}
    settings.STREAMS = {**settings.STREAMS, "returns": second}
    streams.cache_clear()
    broker.wire.create("returns", PARTITIONS)
    producer = client.new_producer()
    try:
        for run in range(1, 4):
            for topic, orders in ((REQUESTS, 1), ("returns", 3000)):
                for number in range(orders):
                    value = order(f"A{run}-{number}", f"WH-{number % 50}")
                    producer.send(broker.wire.name(topic), value=value, key=b"WH-%d" % (number % 50))
            producer.flush()
            ingest(None, threading.Event(), accept_reset=False, once=True)
            read = [BufferedEvent.objects.filter(stream=name).count() for name in (REQUESTS, "returns")]
            assert read == [run, 3000 * run]
    finally:
        producer.close()
        broker.wire.delete("returns")
        streams.cache_clear()
