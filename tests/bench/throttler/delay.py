"""How much later a notification is with who reads notifications-out, at a steady thousand a second; rows written."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.bench import databases, worker
from tests.bench.events import PARTITIONS, paced
from tests.bench.throttler.live import RATE
from tests.bench.throttler.notifications import INPUT, OUTPUT, Source, Topics, customers, fresh, records
from tests.crash.wire import wait_for

CUSTOMERS = 1000
WARM_UP = 300  # messages before the clock runs
Place = tuple[int, int]  # partition and offset of the input


@dataclass
class Listener:
    """Reads a topic as it comes: when each input's notification arrived, in milliseconds since 1970."""

    topics: Topics
    topic: str = OUTPUT
    arrived: dict[Place, float] = field(default_factory=dict)
    ending: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self.topics.servers, "group.id": "bench-listener", "enable.auto.commit": False,
            "isolation.level": "read_committed",
        })  # fmt: skip
        name = self.topics.name(self.topic)
        consumer.assign([TopicPartition(name, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        while not self.ending.is_set():
            found = consumer.poll(0.2)
            if found is not None and not found.error():
                self.arrived[source_of(found)] = time.time() * 1000
        consumer.close()

    def wait_for(self, number: int) -> None:
        wait_for(lambda: len(self.arrived) >= number, 90, f"{number} notifications to arrive")


def source_of(found: Any) -> Place:
    """Itself, of a record of the input."""
    if not found.headers():
        return found.partition(), found.offset()
    _topic, partition, offset = dict(found.headers())["source"].decode().rsplit("/", 2)
    return int(partition), int(offset)


@contextmanager
def listening(topics: Topics, topic: str = OUTPUT) -> Iterator[Listener]:
    listener = Listener(topics, topic)
    thread = threading.Thread(target=listener.listen)
    thread.start()
    try:
        yield listener
    finally:
        listener.ending.set()
        thread.join()


def measure(servers: str, rate: int, seconds: float) -> tuple[list[float], float]:
    """Milliseconds from the broker's timestamp of the input to the arrival, sorted; rows written a second meanwhile."""
    with databases.row_counters(), fresh(servers) as topics, listening(topics) as listener:
        source = Source(topics, **{"linger.ms": 0})
        with worker.running("run_throttler", **topics.environment, THROTTLER_DEFAULT_RATE=RATE):
            steadily(source, 100, WARM_UP)
            listener.wait_for(WARM_UP)
            time.sleep(2)  # the database's counters are a second late
            warm, before, began = set(listener.arrived), rows_written(), time.monotonic()
            steadily(source, rate, round(rate * seconds))
            time.sleep(2)
            rows = (rows_written() - before) / (time.monotonic() - began)
            listener.wait_for(WARM_UP + round(rate * seconds))
        return delays(topics, listener, warm), rows


def bare(servers: str, rate: int, seconds: float) -> list[float]:
    """The same from the input straight to who reads it: what the broker and this process themselves take."""
    with fresh(servers) as topics, listening(topics, INPUT) as listener:
        source = Source(topics, **{"linger.ms": 0})
        steadily(source, 100, WARM_UP)
        listener.wait_for(WARM_UP)
        warm = set(listener.arrived)
        steadily(source, rate, round(rate * seconds))
        listener.wait_for(WARM_UP + round(rate * seconds))
        return delays(topics, listener, warm)


def delays(topics: Topics, listener: Listener, warm: set[Place]) -> list[float]:
    sent = {source_of(found): found.timestamp()[1] for found in records(topics, INPUT)}
    return sorted(at - sent[place] for place, at in listener.arrived.items() if place not in warm)


def steadily(source: Source, rate: int, number: int) -> None:
    """So many messages, each at its time."""
    known = customers(CUSTOMERS)
    for index in paced(rate, number, lambda: source.producer.poll(0)):
        source.send(*known[index % CUSTOMERS], index)
    source.flush()


def rows_written() -> int:
    """Rows inserted, updated and deleted in this database so far, by its own counters."""
    if databases.connection.vendor == "postgresql":
        # Not those of the whole database: they count the catalogue's own rows as well.
        ((written,),) = databases.rows("SELECT SUM(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables")
        return int(written)
    if databases.connection.mysql_is_mariadb:
        # MariaDB has no counters of InnoDB's rows, and those of its handler count an upsert of a known row twice.
        ((written,),) = databases.rows(
            "SELECT SUM(ROWS_CHANGED) FROM information_schema.TABLE_STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
        )
        return int(written or 0)
    found = databases.rows("SHOW GLOBAL STATUS WHERE Variable_name REGEXP '^Innodb_rows_(in|up|de).*$'")
    return sum(int(value) for _name, value in found)
