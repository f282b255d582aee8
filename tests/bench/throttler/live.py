"""Notifications from Kafka to Kafka: a real throttler with nobody over the rate, and a bare loop that only copies."""

from __future__ import annotations

import time
from collections.abc import Iterable

from config.kafka import client
from tests.bench import worker
from tests.bench.events import PARTITIONS
from tests.bench.throttler.notifications import INPUT, OUTPUT, Topics, customers, fill, fresh, records

RATE = "1000000/s"  # nobody is ever over it
PER_TRANSACTION = 2000


def process(servers: str, active: int, number: int) -> tuple[float, worker.Usage]:
    """`run_throttler --once` over a filled topic; `(messages/s, what the process used)`.

    Counted by the broker's clock, from the first record of the output to the last, without those of the first moment.
    """
    with fresh(servers) as topics:
        fill(topics, customers(active), number)
        usage = worker.run("run_throttler", "--once", **topics.environment, THROTTLER_DEFAULT_RATE=RATE)
        return speed(topics, number), usage


def speed(topics: Topics, number: int) -> float:
    """Records a second in the output; raises when one is missing, there twice, or was buffered."""
    found = list(records(topics, OUTPUT))
    sources = {dict(message.headers())["source"] for message in found}
    if len(found) != number or len(sources) != number or any(b'"throttled":true' in one.value() for one in found):
        raise RuntimeError(f"{len(sources)} of {number} notifications left live, in {len(found)} records")
    return rate(message.timestamp()[1] for message in found)


def rate(timestamps: Iterable[int]) -> float:
    times = sorted(timestamps)
    counted = sum(moment > times[0] for moment in times)
    return counted / (times[-1] - times[0]) * 1000


def ceiling(servers: str, active: int, number: int) -> float:
    """Records a second when the same client, in one loop, copies the same records in transactions of 2 000."""
    with fresh(servers) as topics:
        fill(topics, customers(active), number)
        copy(topics, number)
        return rate(message.timestamp()[1] for message in records(topics, OUTPUT))


def copy(topics: Topics, number: int) -> None:
    group, output = topics.name("bare"), topics.name(OUTPUT)
    consumer = client.new_consumer(group, max_poll_records=PER_TRANSACTION)
    producer = client.new_transactional_producer(group, 30.0)
    producer.init_transactions()
    tps = [client.TopicPartition(topics.name(INPUT), partition) for partition in range(PARTITIONS)]
    consumer.assign(tps)
    consumer.seek_to_beginning()
    deadline = time.monotonic() + 300
    while number > 0 and time.monotonic() < deadline:
        polled = consumer.poll(timeout_ms=500)
        if not polled:
            continue
        producer.begin_transaction()
        for batch in polled.values():
            for record in batch:
                producer.send(output, record.value, record.key, record.headers, record.partition)
            number -= len(batch)
        ends = {tp: client.OffsetAndMetadata(batch[-1].offset + 1, "", -1) for tp, batch in polled.items()}
        producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        producer.commit_transaction()
    consumer.close(autocommit=False)
    producer.close()
