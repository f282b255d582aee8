"""Throttler processes, what is sent to them, and what a read-committed consumer sees."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import kafka

from config.kafka.wire_format import partition_of
from tests.crash.platform import Platform, Worker
from tests.crash.throttler.topics import INPUT, NUMBER, OUTPUT, Committed, Committeds, ThrottlerWire
from tests.crash.wire import wait_for


class Throttlers:
    """Starts them, sends messages, and looks at what left."""

    def __init__(self, platform: Platform, wire: ThrottlerWire) -> None:
        self.platform, self.wire = platform, wire
        self.producer = kafka.KafkaProducer(**wire.options, acks="all")
        self.output = Committeds(wire, OUTPUT)
        self.input = Committeds(wire, INPUT)
        self.number = 0
        self.poisoned: set[tuple[int, int]] = set()

    def start(self, name: str = "") -> Worker:
        return self.platform.start("run_throttler", *self._named(name), name=f"throttler-{name}")

    def sabotaged(self, point: str, action: str, name: str = "") -> Worker:
        program = ["-m", "tests.processes.saboteur", point, action, "run_throttler", *self._named(name)]
        return self.platform.launch(program, f"{name}-{point}-{action}", {})

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

    def poison(self, partition: int) -> None:
        """A record that becomes a letter."""
        found = self.producer.send(self.wire.name(INPUT), b"{bad", b"k", partition=partition).get(timeout=30)
        self.poisoned.add((found.partition, found.offset))

    def home_of(self, customer: str) -> int:
        return partition_of(customer.encode(), len(self.input.tps))

    def left(self) -> list[Committed]:
        """In the order of each partition."""
        return sorted(self.output.read(), key=lambda record: record.place)

    def wait_for(self, count: int, seconds: float = 60) -> None:
        wait_for(lambda: len(self.output.read()) >= count, seconds, f"{count} messages to leave", pause=0.2)

    def wait_for_members(self, count: int, seconds: float = 60) -> None:
        """Until the group has settled with so many."""
        admin, group = kafka.KafkaAdminClient(**self.wire.options), self.wire.name(self.wire.group)

        def settled() -> bool:
            found = admin.describe_groups([group])[group]
            return bool(found["group_state"] == "Stable" and len(found["members"]) == count)

        try:
            wait_for(settled, seconds, f"{count} members in the group", pause=0.2)
        finally:
            admin.close()

    def assert_all_left_once(self) -> None:
        """Everything that was sent, in the order of each customer."""
        self.wait_for(self.number)
        found = [record.source[1:] for record in self.left()]
        assert sorted(found) == sorted({record.place for record in self.input.read()} - self.poisoned)
        self.assert_in_order()

    def assert_in_order(self) -> None:
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


def has_partitions(worker: Worker) -> bool:
    return any(name == "consumer_lag_records" for name, _, _ in worker.metrics())
