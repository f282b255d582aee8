"""The topic every run reads: the same transfer requests for all databases and peers, produced once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from config.kafka import RecordBatch, client, internals

PARTITIONS = 12
WAREHOUSES = 500
UPDATES = 0.10  # of all events change an order that was sent before


def events(number: int, partitions: int = PARTITIONS, seed: int = 1) -> Iterator[tuple[str, int, bytes]]:
    """`(order, partition, value)`, values of about 300 bytes.

    The order is the key, for sinks that know no other; the partition is the warehouse's.
    """
    rng = random.Random(seed)
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    known: list[str] = []
    for _ in range(number):
        if known and rng.random() < UPDATES:
            order = rng.choice(known)
        else:
            order = f"{rng.randrange(WAREHOUSES):03d}-{len(known):08d}"
            known.append(order)
        items = [{"sku": f"SKU-{rng.randrange(300):04d}", "quantity": rng.randint(1, 12)} for _ in range(2)]
        value = {
            "order_id": order, "location_id": f"WH-{order[:3]}", "ordered_at": at, "items": items,
            "details": rng.randbytes(62).hex(),
        }  # fmt: skip
        yield order, int(order[:3]) % partitions, msgspec.json.encode(value)


def administrator(servers: str) -> AdminClient:
    """Keep it while its answers are awaited: they end with it."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 3})


def create_topic(servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = administrator(servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(servers: str, topic: str, number: int, partitions: int = PARTITIONS) -> int:
    """Fill a topic, which is new if it is not there; returns how many different orders were sent."""
    if topic not in administrator(servers).list_topics(timeout=30).topics:
        create_topic(servers, topic, partitions)
    producer, orders = new_producer(servers), set()
    for order, partition, value in events(number, partitions):
        orders.add(order)
        send(producer, topic, value, order, partition)
    flush(producer)
    return len(orders)


def new_producer(servers: str, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True, **options})


def send(producer: Producer, *record: Any) -> None:
    """Topic, value, key and perhaps a partition, as soon as there is room for it."""
    while True:
        try:
            producer.produce(*record)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)


def flush(producer: Producer) -> None:
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records could not be produced")


def paced(rate: float, number: int, meanwhile: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Each number at its time, so many a second."""
    began = time.monotonic()
    for turn in range(number):
        if (early := began + turn / rate - time.monotonic()) > 0:
            meanwhile()
            time.sleep(early)
        yield turn


def polled(topics: list[str], size: int) -> Iterator[RecordBatch]:
    """All of these topics, full names, in the batches that a consumer with this poll size gets."""
    consumer = client.new_consumer(None, max_poll_records=size)
    try:
        tps = [client.TopicPartition(name, number) for name in topics for number in consumer.partitions_for_topic(name)]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        left = sum(consumer.end_offsets(tps).values())
        topic_ids = {name: internals.topic_id_of(consumer, name) for name in topics}
        while left:
            records = [record for part in consumer.poll(timeout_ms=500).values() for record in part]
            left -= len(records)
            if records:
                yield RecordBatch(records, topic_ids)
    finally:
        consumer.close(autocommit=False)


def forget(servers: str, groups: list[str]) -> None:
    """Take away the committed offsets of groups nobody is in: the next run starts at the beginning."""
    admin = administrator(servers)
    for future in admin.delete_consumer_groups(groups).values() if groups else ():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].name() != "GROUP_ID_NOT_FOUND":
                raise


def delete(servers: str, prefix: str) -> None:
    """Everything a bench has left on the broker."""
    admin = administrator(servers)
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for future in admin.delete_topics(topics).values() if topics else ():
        future.result(30)
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    forget(servers, [group for group in groups if group.startswith(prefix)])
