"""The topic every run reads: the same transfer requests for all databases and peers, produced once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

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
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True})
    orders = set()
    for order, partition, value in events(number, partitions):
        orders.add(order)
        while True:
            try:
                producer.produce(topic, value, order, partition)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError(f"{topic} could not be filled")
    return len(orders)


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
