"""Throttler processes on the test database, with topics of their own, and what a read-committed consumer sees."""

from __future__ import annotations

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kafka
import pytest

from tests.crash.platform import Platform, Worker
from tests.crash.throttler.topics import INPUT, NUMBER, OUTPUT, TOPICS, Committed, Committeds, ThrottlerWire
from tests.crash.wire import wait_for
from tests.processes.conftest import database_url

TIMINGS = {"KAFKA_SESSION_TIMEOUT_MS": "6000", "THROTTLER_DEFAULT_RATE": "5/s"}


class Throttlers:
    """Starts them, sends messages, and looks at what left."""

    def __init__(self, platform: Platform, wire: ThrottlerWire) -> None:
        self.platform, self.wire = platform, wire
        self.producer = kafka.KafkaProducer(**wire.options, acks="all")
        self.output = Committeds(wire, OUTPUT)
        self.input = Committeds(wire, INPUT)
        self.number = 0

    def start(self, name: str = "") -> Worker:
        return self.platform.start("run_throttler", *self._named(name), name=f"throttler-{name}")

    def sabotaged(self, point: str, deed: str, name: str = "") -> Worker:
        program = ["-m", "tests.processes.saboteur", point, deed, "run_throttler", *self._named(name)]
        return self.platform.launch(program, f"{name}-{point}-{deed}", {})

    def send(self, count: int, customers: Sequence[str] = ("a", "b")) -> None:
        """So many messages of each; returns once they are acknowledged."""
        futures = [self._send(customer) for _ in range(count) for customer in customers]
        for future in futures:
            future.get(timeout=30)

    def _send(self, customer: str) -> Any:
        number, self.number = self.number, self.number + 1
        body = {
            "notification_id": f"n{number}", "customer_id": customer, "recipient": "ada@example.com",
            "message": {"n": number}, "created_at": datetime.now(UTC).isoformat(),
        }  # fmt: skip
        headers = [(NUMBER, str(number).encode())]
        return self.producer.send(self.wire.name(INPUT), json.dumps(body).encode(), customer.encode(), headers)

    def left(self) -> list[Committed]:
        """In the order of each partition."""
        return sorted(self.output.read(), key=lambda record: record.place)

    def wait_for(self, count: int, seconds: float = 60) -> None:
        wait_for(lambda: len(self.output.read()) >= count, seconds, f"{count} messages to leave", pause=0.2)

    def assert_all_left_once(self) -> None:
        """Everything that was sent, in the order of each customer."""
        self.wait_for(self.number)
        found = [record.source[1:] for record in self.left()]
        assert sorted(found) == sorted(record.place for record in self.input.read())
        for places in self._by_customer().values():
            assert places == sorted(places)

    def _by_customer(self) -> dict[bytes, list[Any]]:
        found: dict[bytes, list[Any]] = defaultdict(list)
        for record in self.left():
            found[record.key or b""].append(record.source[1:])
        return found

    def close(self) -> None:
        self.producer.close()
        self.output.close()
        self.input.close()

    @staticmethod
    def _named(name: str) -> list[str]:
        return ["--instance", name] if name else []


@contextmanager
def throttlers_on(directory: Path) -> Iterator[Throttlers]:
    servers = os.environ.get("TEST_KAFKA_SERVERS", "")
    if not servers:
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    wire = ThrottlerWire(servers, f"t{uuid.uuid4().hex[:8]}.")
    environment = {"KAFKA_BOOTSTRAP_SERVERS": servers, "KAFKA_TOPIC_PREFIX": wire.prefix}
    with Platform(directory, {**TIMINGS, **environment, "DATABASE_URL": database_url()}) as platform:
        platform.manage("create_topics")
        found = Throttlers(platform, wire)
        try:
            yield found
        finally:
            found.close()
            wire.delete(*TOPICS)


def has_partitions(worker: Worker) -> bool:
    return any(name == "consumer_lag_records" for name, _, _ in worker.metrics())
