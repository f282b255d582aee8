"""The embedded broker seen from the wire."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kafka.errors
import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from config.demo import embedded_kafka
from config.demo.embedded_kafka import EmbeddedKafka, EmbeddedKafkaError
from tests.services import embedded
from tests.services.embedded import FaultyKafka

ROOT = Path(__file__).parents[3]
PRODUCE, OFFSET_COMMIT = 0, 8
NOT_LEADER, TOO_LARGE, ILLEGAL_GENERATION = 6, 10, 22


@pytest.fixture
def broker() -> Iterator[FaultyKafka]:
    with FaultyKafka() as running:
        running.create_topic("orders", 3)
        yield running


@pytest.fixture
def connect(broker: FaultyKafka) -> Iterator[Callable[..., Any]]:
    """connect(KafkaConsumer or KafkaProducer, *topics, **options): a client that is closed in the end."""
    clients = []

    def make(kind: type, *topics: str, **options: Any) -> Any:
        consumer = kind is KafkaConsumer
        known = {"enable_auto_commit": False, "auto_offset_reset": "earliest"} if consumer else {}
        known |= embedded.CONSUMER_OPTIONS if consumer else embedded.CLIENT_OPTIONS
        clients.append(kind(*topics, **{"bootstrap_servers": broker.bootstrap_servers, **known, **options}))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def producer(connect: Callable[..., Any]) -> KafkaProducer:
    return connect(KafkaProducer)


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Call `condition` until it is true, and return what it said; fails after `seconds`."""
    limit = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < limit, f"not within {seconds} s"
    return answer


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def enough() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(records)
        return len(found) >= count

    until(enough)
    return found


def assigned(consumer: KafkaConsumer, *partitions: int) -> list[TopicPartition]:
    """Give the consumer these partitions of `orders`, from their beginning."""
    places = [TopicPartition("orders", partition) for partition in partitions]
    consumer.assign(places)
    consumer.seek_to_beginning()
    return places


def send(producer: KafkaProducer, count: int, *, topic: str = "orders", partition: int | None = None) -> None:
    sent = [producer.send(topic, b"%d" % number, partition=partition) for number in range(count)]
    producer.flush()
    assert all(future.succeeded() for future in sent)


# -- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_record_arrives_as_it_was_sent(connect, compression):
    producer = connect(KafkaProducer, compression_type=compression)
    producer.send("orders", b"v", key=b"k", headers=[("trace", b"1")], timestamp_ms=1_700_000_000_123).get(10)
    producer.send("orders", None, key=b"gone").get(10)
    consumer = connect(KafkaConsumer)
    assigned(consumer, 0, 1, 2)
    first, second = sorted(read(consumer, 2), key=lambda record: record.key, reverse=True)
    assert (first.key, first.value, first.headers, first.timestamp) == (
        b"k", b"v", [("trace", b"1")], 1_700_000_000_123,
    )  # fmt: skip
    assert (second.key, second.value) == (b"gone", None)


def test_a_consumer_without_a_group_seeks_pauses_and_knows_both_ends(connect, producer):
    send(producer, 10, partition=0)
    send(producer, 10, partition=1)
    consumer = connect(KafkaConsumer)
    first, second = assigned(consumer, 0, 1)
    assert consumer.beginning_offsets([first]) == {first: 0}
    assert consumer.end_offsets([first, second]) == {first: 10, second: 10}
    consumer.seek(first, 7)
    consumer.pause(second)
    assert [(record.partition, record.offset) for record in read(consumer, 3)] == [(0, 7), (0, 8), (0, 9)]
    consumer.resume(second)
    assert {record.partition for record in read(consumer, 10)} == {1}


def test_old_records_are_gone_loudly(broker, connect, producer):
    send(producer, 10, partition=0)
    broker.delete_records("orders", 0, before=6)
    consumer = connect(KafkaConsumer, auto_offset_reset="none")
    (place,) = assigned(consumer, 0)
    assert consumer.beginning_offsets([place]) == {place: 6}
    consumer.seek(place, 2)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        until(lambda: consumer.poll(timeout_ms=500))


def test_a_topic_made_again_has_another_id(broker, connect):
    BROKER_API_VERSIONS[embedded.API_VERSION] = embedded.api_versions(BROKER_API_VERSIONS)
    cluster = connect(KafkaConsumer, "orders", api_version=embedded.API_VERSION)._client.cluster

    def now() -> Any:
        # Asked each time: a subscription that meets a request under way waits for the one minutes later.
        cluster.request_update()
        return cluster.topic_id("orders")

    before = until(now)
    broker.delete_topic("orders")
    broker.create_topic("orders", 3)
    assert until(lambda: now() not in (None, before))


# -- groups ---------------------------------------------------------------------------------------


def test_a_group_resumes_where_it_committed(connect, producer):
    send(producer, 10, partition=0)
    place = TopicPartition("orders", 0)
    member = connect(KafkaConsumer, "orders", group_id="g")
    read(member, 10)
    member.commit({place: OffsetAndMetadata(4, "", -1)})
    member.close()
    assert read(connect(KafkaConsumer, "orders", group_id="g"), 6)[0].offset == 4


def test_groups_do_not_disturb_each_other(broker, connect, producer):
    broker.create_topic("stock", 2)
    send(producer, 5)
    send(producer, 5, topic="stock")
    both = connect(KafkaConsumer, "orders", "stock", group_id="both")
    one = connect(KafkaConsumer, "stock", group_id="one")
    assert {record.topic for record in read(both, 10)} == {"orders", "stock"}
    assert len(read(one, 5)) == 5
    both.commit()
    assert one.committed(TopicPartition("stock", 0)) is None


def test_two_members_share_with_a_patient_leader(connect):
    class Assignor(embedded.PatientLeader, RangePartitionAssignor):
        pass

    def poll(member: KafkaConsumer) -> int:
        try:
            member.poll(timeout_ms=1000)
        except kafka.errors.InvalidRequestError:  # on a loaded machine: it came too late and polls again
            return 0
        return len(member.assignment())

    options = {"group_id": "g", "partition_assignment_strategy": [Assignor]}
    first = connect(KafkaConsumer, "orders", **options)
    until(lambda: poll(first) == 3)
    second = connect(KafkaConsumer, "orders", **options)
    with ThreadPoolExecutor(2) as pool:
        until(lambda: sorted(pool.map(poll, [first, second])) == [1, 2], 60)


MEMBER = """
import sys
from kafka import KafkaConsumer
from tests.services.embedded import CONSUMER_OPTIONS
member = KafkaConsumer("orders", bootstrap_servers=sys.argv[1], group_id="g", **CONSUMER_OPTIONS)
while not member.assignment():
    member.poll(timeout_ms=1000)
print("mine", flush=True)
while True:
    member.poll(timeout_ms=1000)
"""


@pytest.mark.processes
def test_the_successor_of_a_killed_member_has_its_partitions_soon(broker):
    command = [sys.executable, "-c", MEMBER, broker.bootstrap_servers]
    for _ in range(2):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as member:
            started = time.monotonic()
            assert member.stdout.readline() == "mine\n"
            member.kill()
    assert time.monotonic() - started < 30  # 3-4 s on a quiet machine


# -- faults ---------------------------------------------------------------------------------------


def test_what_is_sent_while_the_broker_is_down_arrives_when_it_is_up(broker, producer):
    send(producer, 1)
    broker.down()
    waiting = producer.send("orders", b"later")
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        waiting.get(0.5)
    broker.up()
    assert waiting.get(30).topic == "orders"


def test_pushed_errors_meet_the_next_requests(broker, connect, producer):
    send(producer, 1)
    broker.push_errors(PRODUCE, NOT_LEADER, NOT_LEADER)
    producer.send("orders", b"retried").get(20)
    broker.push_errors(PRODUCE, TOO_LARGE)
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        producer.send("orders", b"refused").get(20)
    broker.push_errors(OFFSET_COMMIT, ILLEGAL_GENERATION)
    broker.clear_errors(OFFSET_COMMIT)
    member = connect(KafkaConsumer, "orders", group_id="g")
    read(member, 2)
    member.commit()


def test_a_round_trip_can_be_long(broker, connect):
    slow = connect(KafkaProducer)
    slow.send("orders", b"warm").get(10)
    broker.set_round_trip(300)
    started = time.monotonic()
    slow.send("orders", b"slow").get(10)
    assert time.monotonic() - started > 0.25


def test_a_broker_that_does_not_run_refuses_in_words():
    stopped = FaultyKafka()
    for ask in (lambda: stopped.create_topic("t", 1), stopped.down, lambda: stopped.bootstrap_servers):
        with pytest.raises(EmbeddedKafkaError, match="does not run"):
            ask()
    stopped.stop()


def test_bad_topics_are_refused(broker):
    with pytest.raises(EmbeddedKafkaError, match="already exists"):
        broker.create_topic("orders", 3)
    with pytest.raises(EmbeddedKafkaError, match="0 partitions"):
        broker.create_topic("empty", 0)


def test_without_confluent_kafka_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    embedded_kafka.load.cache_clear()
    with pytest.raises(EmbeddedKafkaError, match=r"spillway\[demo\]"):
        EmbeddedKafka().start()
    embedded_kafka.load.cache_clear()
