"""Real processes, real Kafka: killed, joined and left while half of the effects come twice."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
import msgspec
import pytest
from django.conf import settings as project
from django.db import connection

from buffer.models import InventoryStock, InventoryTracking
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import PAID, ledger, moved, paid, quantities
from tests.crash.platform import Platform, Worker
from tests.crash.wire import Wire, wait_for
from tests.processes.conftest import TIMINGS, assert_verified, database_url

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
STOCKS, PARTITIONS = 50, 4


class Topics:
    """The stock topics of this test on the real broker."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.sent = 0
        self.producer = kafka.KafkaProducer(**wire.options, acks="all", linger_ms=5)
        for topic in project.MOVEMENTS:
            wire.create(topic, PARTITIONS)

    def send(self, *messages: tuple[str, Any]) -> None:
        for topic, value in messages:
            key = next(iter(value.values())).encode()
            self.producer.send(self.wire.name(topic), key=key, value=msgspec.json.encode(value))
        self.producer.flush(timeout=60)
        self.sent += len(messages)

    def wait_until_read(self, seconds: float = 60.0) -> None:
        """By the positions in the database: the broker hears of them with the next batch at the latest."""
        wait_for(lambda: self.read() == self.sent, seconds, "every record to be written", pause=0.2)

    def read(self) -> int:
        return sum(Watermark.objects.values_list("next_offset", flat=True))

    def close(self) -> None:
        self.producer.close()
        self.wire.delete(*project.MOVEMENTS)


@pytest.fixture
def topics(settings: Any) -> Iterator[Topics]:
    import os

    servers = os.environ.get("TEST_KAFKA_SERVERS", "")
    if not servers:
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    settings.KAFKA_TOPIC_PREFIX = prefix = f"l{uuid.uuid4().hex[:8]}."
    with closing(Topics(Wire(servers, prefix))) as found:
        yield found


@pytest.fixture
def workers(transactional_db: None, topics: Topics, tmp_path: Path) -> Iterator[Platform]:
    environment = {
        **TIMINGS, "KAFKA_BOOTSTRAP_SERVERS": topics.wire.servers, "KAFKA_TOPIC_PREFIX": topics.wire.prefix,
        "DATABASE_URL": database_url(), "KAFKA_POLL_RECORDS": "200",
    }  # fmt: skip
    with Platform(tmp_path, environment) as platform:
        yield platform


def name(number: int) -> str:
    return f"ST-{number:02d}"


def traffic(number: int, seed: int) -> tuple[list[tuple[str, Any]], dict[str, int], int]:
    """Messages with a fifth of them again, what they sum up to, and how many movements they are."""
    rng = random.Random(seed)
    expected = dict.fromkeys(map(name, range(STOCKS)), 0)
    made: list[tuple[str, Any]] = []
    for n in range(number):
        one, two = (name(place) for place in rng.sample(range(STOCKS), 2))
        if n % 2:
            made.append(paid(f"S{n:05d}", **{one: 2, two: 1}))
            changes = {one: -2, two: -1}
        else:
            made.append(moved(f"T{n:05d}", one, two, 3))
            changes = {one: -3, two: 3}
        for stock, delta in changes.items():
            expected[stock] += delta
    again = made + rng.choices(made, k=number // 5)
    rng.shuffle(again)
    return again, expected, 2 * number


def crew_size() -> int:
    return 1 if connection.vendor == "sqlite" else 2


def test_killed_and_rebalanced_workers_apply_every_effect_once(topics: Topics, workers: Platform) -> None:
    InventoryStock.objects.bulk_create(InventoryStock(id=name(number)) for number in range(STOCKS))
    messages, expected, movements = traffic(3000, 7)
    crew: list[Worker] = [workers.start("track_inventory", name=f"track-{n}") for n in range(crew_size())]
    for start in range(0, len(messages), 900):
        topics.send(*messages[start : start + 900])
        seen = InventoryTracking.objects.count()
        wait_for(lambda seen=seen: InventoryTracking.objects.count() > seen, 40, "the next movements")
        crew.pop(0).kill()
        crew.append(workers.start("track_inventory", name=f"heir-{start}"))
    topics.wait_until_read()
    assert [worker.stop() for worker in crew] == [0] * len(crew)
    assert quantities() == expected
    assert len(ledger()) == movements
    assert not DeadLetter.objects.exists()
    assert_verified()
    totals = counters.totals("ledger")
    assert totals["applied"] == 3000
    assert totals["duplicate"] == totals["read"] - 3000 >= 600


@pytest.mark.parametrize(("point", "action"), [("written", "kill"), ("stored", "kill"), ("written", "lose")])
def test_a_worker_that_dies_around_its_commit_leaves_both_or_neither(
    topics: Topics, workers: Platform, point: str, action: str
) -> None:
    InventoryStock.objects.create(id="A", quantity=0)
    topics.send(*[paid(f"S{n}", A=1) for n in range(50)])
    program = ["-m", "tests.processes.saboteur", point, action, "track_inventory"]
    worker = workers.launch(program, "sabotaged", {})
    if action == "kill":
        assert worker.end(40) == -9
        assert len(ledger()) == -quantities()["A"]
        worker = workers.start("track_inventory")
    topics.send(*[paid(f"S{n}", A=1) for n in range(40, 70)])
    topics.wait_until_read()
    assert worker.stop() == 0
    assert quantities() == {"A": -70}
    assert len(ledger()) == 70
    assert_verified()


def test_a_topic_created_again_stops_with_an_alarm_and_a_letter(topics: Topics, workers: Platform) -> None:
    InventoryStock.objects.create(id="A", quantity=0)
    topics.send(*[paid(f"S{n}", A=1) for n in range(40)])
    assert workers.manage("track_inventory", "--until-idle", "2").returncode == 0
    assert quantities() == {"A": -40}
    topics.wire.delete(PAID)
    topics.wire.create(PAID, PARTITIONS)
    topics.send(*[paid(f"N{n}", A=1) for n in range(40)])
    stopped = workers.manage("track_inventory", "--until-idle", "2", check=False)
    assert stopped.returncode == 1
    assert "created again" in stopped.stderr
    assert Watermark.objects.exclude(alarm="").exists()
    assert set(DeadLetter.objects.values_list("reason", flat=True)) == {"partition_stopped"}
    assert quantities() == {"A": -40}
    assert workers.manage("track_inventory", "--until-idle", "2", "--accept-reset").returncode == 0
    assert quantities() == {"A": -80}
    assert_verified()
