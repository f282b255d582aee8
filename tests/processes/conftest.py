"""Brokers, workers on the test database, and questions to both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection

from config.database.clock import database_now
from outbox.bookkeeping.models import Watermark
from tests.crash.oracle import Produced, Published
from tests.crash.platform import ROOT, Platform, Worker, free_port
from tests.crash.run import Outcome
from tests.crash.traffic import Sample
from tests.crash.wire import BATCHES, REQUESTS, Output, Wire, wait_for
from tests.prepared import PythonProcess
from tests.processes.proxy import Gate

AnyWire = TypeVar("AnyWire", bound=Wire)
PARTITIONS = 4
# The demo's timings: short, but far enough apart that no rule can be taken for another.
TIMINGS = {
    "BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "20", "BUFFER_LEASE_SECONDS": "4",
    "KAFKA_SESSION_TIMEOUT_MS": "6000",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.processes)


class Broker:
    """One broker with topics of this test's own, seen from outside."""

    def __init__(self, wire: Wire, environment: Mapping[str, str]) -> None:
        self.wire = wire
        self.environment = environment
        self._output: Output | None = None

    def send(self, *values: bytes, key: str = "") -> list[Produced]:
        """Produce values, each under the key of its own location unless one is given."""
        return self.wire.produce([Sample(key or location_of(value), "", 0, value) for value in values])

    def deliveries(self) -> list[Published]:
        """Every record of the output topic."""
        if self._output is None:
            self._output = self.wire.output()
        return sorted(self._output.read(), key=lambda record: record.offset)

    def batches(self) -> list[dict[str, Any]]:
        """The messages in transfer-batches; one that was delivered again must be the same and counts once."""
        found: dict[str, tuple[Any, ...]] = {}
        for record in self.deliveries():
            batch_id = json.loads(record.value)["batch_id"]
            content = (record.key, record.value, record.headers)
            assert found.setdefault(batch_id, content) == content, f"{batch_id} was sent with other bytes"
        return [json.loads(value) for _, value, _ in found.values()]

    def orders(self) -> list[str]:
        """Every order of every distinct batch, sorted: an order that was sent twice stands there twice."""
        return sorted(order for body in self.batches() for order in body["order_ids"])

    def wait_for_orders(self, *wanted: str, seconds: float = 30.0) -> None:
        """Until exactly these orders have been sent, each once."""
        expected = sorted(wanted)
        try:
            wait_for(lambda: len(self.orders()) >= len(expected), seconds, f"{len(expected)} orders")
        finally:
            assert self.orders() == expected

    def close(self) -> None:
        if self._output is not None:
            self._output.close()
        self.wire.close()


def location_of(value: bytes) -> str:
    try:
        return json.loads(value)["location_id"]
    except (ValueError, KeyError, TypeError):
        return "WH-1"


@pytest.fixture(params=["embedded", "kafka"])
def broker(request: pytest.FixtureRequest, settings: Any) -> Iterator[Broker]:
    """`embedded` is a process of ours; `kafka` is the real one, and topics on it are deleted afterwards."""
    settings.KAFKA_TOPIC_PREFIX = prefix = f"p{uuid.uuid4().hex[:8]}."
    make = {"embedded": embedded, "kafka": real}[request.param]
    yield from make(prefix)


def kafka_servers() -> str:
    servers = os.environ.get("TEST_KAFKA_SERVERS", "")
    if not servers:
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    return servers


@contextmanager
def own_wire(kind: type[AnyWire], settings: Any, *topics: str) -> Iterator[AnyWire]:
    """The real broker under a prefix of this test's own, which this process has, too."""
    settings.KAFKA_TOPIC_PREFIX = prefix = f"p{uuid.uuid4().hex[:8]}."
    wire = kind(kafka_servers(), prefix)
    try:
        yield wire
    finally:
        wire.close()
        wire.delete(*(topics or wire.inputs))


def real(prefix: str, servers: str = "", *, lasting: bool = True) -> Iterator[Broker]:
    """Topics on the real broker, deleted afterwards unless it does not last longer than they do."""
    wire = Wire(servers or kafka_servers(), prefix)
    for topic in (REQUESTS, BATCHES):
        wire.create(topic, PARTITIONS)
    found = Broker(wire, wire.environment)
    yield found
    found.close()
    if lasting:
        wire.delete(REQUESTS, BATCHES)


def embedded(prefix: str) -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="the embedded broker needs confluent-kafka")
    port = free_port()
    topics = [f"--topic={prefix}{topic}:{PARTITIONS}" for topic in (REQUESTS, BATCHES)]
    command = [sys.executable, "manage.py", "embedded_kafka", f"--port={port}", "--with-parent", *topics]
    process = PythonProcess(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the embedded broker did not start"
        servers = f"127.0.0.1:{port}"
        found = Broker(Wire(servers, prefix, api_version=(2, 3)), {
            "KAFKA_BOOTSTRAP_SERVERS": servers, "KAFKA_TOPIC_PREFIX": prefix,
            "KAFKA_API_VERSION": "2.3", "KAFKA_SESSION_TIMEOUT_MS": "2000",
        })  # fmt: skip
        yield found
        found.close()
    finally:
        process.terminate()
        process.wait(20)


def database_url() -> str:
    """The test database as a process would be told."""
    where = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{where['NAME']}"
    scheme = "postgres" if connection.vendor == "postgresql" else "mysql"
    return f"{scheme}://{where['USER']}:{where['PASSWORD']}@{where['HOST']}:{where['PORT']}/{where['NAME']}"


@pytest.fixture
def workers(transactional_db: None, broker: Broker, tmp_path: Path) -> Iterator[Platform]:
    """Starts manage.py processes on the test database; nothing outlives the test."""
    with Platform(tmp_path, {**TIMINGS, **broker.environment, "DATABASE_URL": database_url()}) as platform:
        yield platform
        for worker in platform.workers:  # pytest shows it beside a test that failed
            print(f"--- the end of the log of {worker.name}", *worker.text.splitlines()[-20:], sep="\n")


@pytest.fixture
def gate() -> Iterator[Gate]:
    """The way to the test database, which can be shut."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no server that could be away")
    with closing(Gate(database_url())) as found:
        yield found


@pytest.fixture
def both(workers: Platform) -> Callable[..., tuple[Any, Any]]:
    """both(**environment): an ingester and a flusher, started together, that have heard every partition.

    From then on silence is idleness, and what a test sends is read at once, however busy the machine is.
    """

    def start(**environment: str) -> tuple[Worker, Worker]:
        began = database_now()
        ingest = workers.start("ingest_events", **environment)
        flush = workers.start("flush_buffer", **environment)
        heard = Watermark.objects.filter(caught_up_at__gt=began)
        wait_for(lambda: heard.count() >= PARTITIONS, 60, "every partition to be heard")
        return ingest, flush

    return start


@pytest.fixture
def pairs() -> range:
    """How many workers of a kind may run side by side on this database."""
    return range(1, 2 if connection.vendor == "sqlite" else 3)


def assert_holds(outcome: Outcome) -> None:
    """Of a small crash run, which prints what the large one does."""
    print(*outcome.findings, outcome.figures, sep="\n")
    assert [finding.name for finding in outcome.findings if not finding.ok] == []


def assert_verified() -> None:
    """Conservation and every other invariant, in this process."""
    from config.flows import prove

    proof = prove()
    assert proof["ok"], [check for check in proof["checks"] if not check["ok"]]
