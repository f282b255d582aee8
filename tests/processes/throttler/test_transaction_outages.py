"""A broker that dies in the middle of a transaction: no call waits for ever, and what was decided is there once."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from config.kafka import client, producer_internals
from config.kafka.reader import Reader
from config.kafka.transactional_producer import Committed, TransactionalProducer, Unknown
from tests.services.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.processes]
LIMIT = 1.5  # of a call, in seconds
PATIENCE = 30  # of the test, for a call that should have returned long before
STEPS = ["begin", "send", "send_offsets", "begin_commit"]


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if not os.environ.get(Kafka.variable):
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    if not shutil.which("java"):
        pytest.skip("Java is not installed, so there is no broker that could be killed")
    service = Kafka(tmp_path_factory.mktemp("services"))
    service.start()
    yield service
    service.stop()


@pytest.fixture
def topic(own_kafka: Kafka, settings: Any) -> str:
    settings.KAFKA_BOOTSTRAP_SERVERS = [own_kafka.address]
    name = f"t{uuid.uuid4().hex[:8]}"
    with closing(client.new_admin()) as admin:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
    return name


@pytest.fixture
def producer(topic: str) -> Iterator[TransactionalProducer]:
    found = TransactionalProducer(f"id-{topic}", LIMIT)
    until_built(found)
    yield found
    found.close()


def kill(broker: Kafka) -> None:
    assert broker.process.stop(signal.SIGKILL, 10)


def until_built(producer: TransactionalProducer) -> None:
    """As a worker does it: again until the broker answers."""
    for _ in range(20):
        try:
            return in_time(producer.rebuild)
        except client.KafkaError:
            continue
    raise AssertionError("the producer was never built again")


def in_time(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call gives or raises; one that does not come back is a failure, not a test that hangs."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call(*arguments))
        except client.KafkaError as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert answers, f"{call} has not returned"
    if isinstance(answers[0], client.KafkaError):
        raise answers[0]
    return answers[0]


def transact(producer: TransactionalProducer, topic: str, value: bytes, offset: int) -> Any:
    producer.begin()
    producer.send(topic, 0, None, value, [])
    return producer.commit({(topic, 0): offset}, metadata_of(f"group-{topic}"))


def store(producer: TransactionalProducer, topic: str, value: bytes, offset: int) -> None:
    """As a worker does it: where it is not known whether a record is there, build anew and look; if it is not, again."""
    for _ in range(20):
        if value in values_of(topic):
            return
        if in_time(transact, producer, topic, value, offset) != Committed():
            until_built(producer)


def metadata_of(group: str) -> Any:
    """Of the member that joined; None where no offsets are sent. Those of no generation would be refused."""
    return MEMBERS[group].group_metadata() if group in MEMBERS else None


MEMBERS: dict[str, Any] = {}


@pytest.fixture
def member(topic: str) -> Iterator[Any]:
    group = f"group-{topic}"
    consumer = MEMBERS[group] = client.new_consumer(group, auto_offset_reset="earliest", session_timeout_ms=45_000)
    consumer.subscribe([topic])
    for _ in range(20):
        consumer.poll(timeout_ms=1000)
        if consumer.assignment():
            break
    assert consumer.assignment()
    yield consumer
    consumer.close(autocommit=False)


def values_of(topic: str) -> list[bytes]:
    with Reader(topic) as reader:
        return [record.value for records in reader.batches() for record in records]


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_that_is_killed_leaves_nothing_waiting_and_nothing_twice(
    own_kafka: Kafka,
    topic: str,
    producer: TransactionalProducer,
    member: Any,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store(producer, topic, b"before", 1)
    place = producer_internals if hasattr(producer_internals, step) else producer
    real = getattr(place, step)

    def killed_before(*arguments: Any) -> Any:
        monkeypatch.setattr(place, step, real)
        kill(own_kafka)
        return real(*arguments)

    monkeypatch.setattr(place, step, killed_before)
    verdict = in_time(transact, producer, topic, b"once", 2)
    assert isinstance(verdict, Unknown)
    assert not producer.usable
    with pytest.raises(client.KafkaError):
        in_time(producer.rebuild)  # while it is away: an error, and no thread that waits
    own_kafka.start()
    until_built(producer)
    store(producer, topic, b"once", 2)
    assert values_of(topic) == [b"before", b"once"]
