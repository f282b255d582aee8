"""Real worker processes on the test database, against the embedded broker and Apache Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from django.conf import settings
from django.db import connection

from config.embedded import EmbeddedKafka
from config.kafka import Message, Producer, Sent
from config.kafka.reading import Reader
from config.kafka.topics import topic_name

PATIENCE = 90.0
PARTITIONS = 3


def eventually(condition: Callable[[], Any], what: str = "", patience: float = PATIENCE) -> Any:
    """The first true answer of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + patience
    while not (answer := condition()):
        assert time.monotonic() < deadline, what or "waited in vain"
        threading.Event().wait(0.05)
    return answer


def database_url() -> str:
    """The test database as a child process has to name it."""
    config = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{config['NAME']}"
    scheme = "postgres" if connection.vendor == "postgresql" else "mysql"
    credentials = f"{quote(config['USER'])}:{quote(config['PASSWORD'])}"
    return f"{scheme}://{credentials}@{config['HOST']}:{config['PORT']}/{config['NAME']}"


@dataclass
class Workers:
    """Starts `manage.py …` with short timings, and ends everything it started."""

    environment: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments], env={**os.environ, **self.environment, **changes},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.running.append(process)
        return process

    def run(self, *arguments: str, code: int = 0, **changes: str) -> str:
        """Run one command to its end; returns what it printed."""
        process = self.start(*arguments, **changes)
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, output
        return output

    def end(self, process: subprocess.Popen[str]) -> None:
        """SIGTERM: the worker finishes what it has in hand and leaves with 0."""
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, output

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.communicate()


@dataclass
class Broker:
    """Topics of this test's own."""

    embedded: EmbeddedKafka | None
    producer: Producer = field(default_factory=Producer)

    def create(self, *names: str) -> None:
        if self.embedded:
            for name in names:
                self.embedded.create_topic(topic_name(name), PARTITIONS)
            return
        from config.kafka import client

        admin = client.new_admin()
        wanted = {topic_name(name): {"num_partitions": PARTITIONS, "replication_factor": 1} for name in names}
        admin.create_topics(wanted, wait_for_metadata=True)
        admin.close()

    def delete(self, name: str) -> None:
        from config.kafka import client

        admin = client.new_admin()
        admin.delete_topics([topic_name(name)])
        eventually(lambda: topic_name(name) not in admin.list_topics(), "the topic is still there")
        admin.close()

    def send(self, *values: bytes, key: str = "k") -> None:
        messages = [Message(topic_name("transfer-requests"), key, value) for value in values]
        assert all(isinstance(outcome, Sent) for outcome in self.producer.send_all(messages))

    def batches(self) -> dict[str, dict[str, Any]]:
        """What stands in transfer-batches, by batch_id: a consumer that deduplicates sees just this."""
        with Reader(topic_name("transfer-batches")) as reader:
            values = [msgspec.json.decode(record.value) for part in reader.batches() for record in part]
        return {value["batch_id"]: value for value in values}

    def orders_sent(self) -> list[str]:
        return sorted(name for batch in self.batches().values() for name in batch["order_ids"])


@pytest.fixture(params=["embedded", "kafka"])
def broker(request, settings) -> Iterator[Broker]:
    settings.KAFKA_TOPIC_PREFIX = f"w{uuid.uuid4().hex[:8]}."
    if request.param == "kafka":
        servers = os.environ.get("TEST_KAFKA_SERVERS")
        if not servers:
            pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
        settings.KAFKA_BOOTSTRAP_SERVERS = servers.split(",")
        found = Broker(None)
        found.create("transfer-requests", "transfer-batches")
        yield found
        found.producer.close()
        return
    if connection.vendor != "sqlite":
        pytest.skip(
            "the embedded broker is paired with the embedded database; this one runs with Apache Kafka"
        )
    if request.node.get_closest_marker("kafka"):
        pytest.skip("the embedded broker has no administration API and no second member")
    with EmbeddedKafka() as embedded:
        settings.KAFKA_BOOTSTRAP_SERVERS = [embedded.bootstrap_servers]
        settings.KAFKA_API_VERSION = (2, 3)
        settings.KAFKA_SESSION_TIMEOUT_MS = 2000
        found = Broker(embedded)
        found.create("transfer-requests", "transfer-batches")
        yield found
        found.producer.close()


@pytest.fixture
def workers(broker, transactional_db) -> Iterator[Workers]:
    version = settings.KAFKA_API_VERSION
    found = Workers(
        {
            "DATABASE_URL": database_url(),
            "KAFKA_BOOTSTRAP_SERVERS": ",".join(settings.KAFKA_BOOTSTRAP_SERVERS),
            "KAFKA_TOPIC_PREFIX": settings.KAFKA_TOPIC_PREFIX,
            "KAFKA_API_VERSION": ".".join(map(str, version)) if version else "",
            "KAFKA_SESSION_TIMEOUT_MS": "2000" if version else "6000",
            "BUFFER_IDLE_SECONDS": "1",
            "BUFFER_CAP_SECONDS": "60",
            "BUFFER_LEASE_SECONDS": "2",
            "LOG_FORMAT": "console",
        }
    )
    connection.close()
    yield found
    found.close()
