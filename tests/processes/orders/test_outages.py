"""Brokers and databases that go away for a while, and come back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from buffer.events.models import Batch, BufferedEvent
from config.kafka import Failed, Outgoing, Producer, Sent
from tests.conftest import order
from tests.crash.platform import Platform
from tests.crash.wire import BATCHES, Wire, wait_for
from tests.processes.conftest import Broker, assert_verified, database_url, real
from tests.processes.proxy import Gate
from tests.services.kafka import Kafka

on_kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def orders(prefix: str, count: int = 20) -> list[bytes]:
    return [order(f"{prefix}{n:02d}", f"WH-{n % 5}") for n in range(count)]


def ids(*prefixes: str, count: int = 20) -> list[str]:
    return [f"{prefix}{n:02d}" for prefix in prefixes for n in range(count)]


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that may be stopped, where there is a real one at all."""
    if not os.environ.get(Kafka.variable):
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    if not shutil.which("java"):
        pytest.skip("Java is not installed, so there is no broker that could be stopped")
    service = Kafka(tmp_path / "services")
    service.start()
    yield service
    service.stop()


@pytest.fixture
def broker(request: pytest.FixtureRequest, settings: Any) -> Iterator[Broker]:
    """As everywhere, and `own-kafka`: one that the test may stop."""
    if request.param == "kafka":
        settings.KAFKA_TOPIC_PREFIX = prefix = f"p{uuid.uuid4().hex[:8]}."
        yield from real(prefix)
    else:
        settings.KAFKA_TOPIC_PREFIX = "own."
        yield from real("own.", request.getfixturevalue("own_kafka").address, lasting=False)


@pytest.mark.parametrize("broker", ["own-kafka"], indirect=True)
def test_a_broker_that_is_down_for_a_while_loses_nothing(broker: Broker, both: Any, own_kafka: Kafka) -> None:
    """What was cut during the outage goes out afterwards, under the ids it was given."""
    ingest, flush = both(BUFFER_IDLE_SECONDS="6", BUFFER_CAP_SECONDS="6")
    broker.send(*orders("0", count=1))
    broker.wait_for_orders(*ids("0", count=1))  # a flusher that has never seen the broker would cut nothing
    broker.send(*orders("A"))
    wait_for(lambda: BufferedEvent.objects.count() == 21, 90, "20 orders in the buffer")
    own_kafka.stop()
    # As a rule all five; where not all are due at once, the flusher finds the broker away before it cuts the rest.
    wait_for(lambda: Batch.objects.claimed().exists(), 90, "batches to be cut")
    cut = {str(batch.pk): json.loads(batch.payload) for batch in Batch.objects.claimed()}
    wait_for(lambda: "broker_unavailable" in ingest.text, 90, "the ingester to find no broker")
    own_kafka.start()
    broker.send(*orders("B"))
    broker.wait_for_orders(*ids("0", count=1), *ids("A", "B"), seconds=120)
    assert {body["batch_id"]: body for body in broker.batches() if body["batch_id"] in cut} == cut
    assert_verified()
    own_kafka.stop()
    assert (ingest.stop(), flush.stop()) == (0, 0)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="no database has a part in it")
def test_a_broker_that_freezes_in_the_middle_of_a_request_is_sent_to_again(settings: Any, own_kafka: Kafka) -> None:
    """For longer than the Kafka client tries: by itself it would never send again (docs/adr/0004)."""
    settings.KAFKA_BOOTSTRAP_SERVERS = [own_kafka.address]
    with closing(Wire(own_kafka.address, "")) as wire:
        wire.create(BATCHES, 1)
    message = Outgoing(BATCHES, "WH-1", b"{}")
    with closing(Producer(patience=10, delivery_timeout_ms=3_000, request_timeout_ms=1_000)) as producer:
        (before,) = producer.send_all([message])  # from here on the client knows the topic and sends at once
        with frozen(own_kafka):
            (meanwhile,) = producer.send_all([message])
        (after,) = producer.send_all([message])
    assert (before, type(meanwhile)) == (Sent(0, 0), Failed)
    # The frozen broker had the request in its socket: it stores that as well, and the batch id tells the two apart.
    assert after in {Sent(0, 1), Sent(0, 2)}


@contextmanager
def frozen(service: Kafka) -> Iterator[None]:
    """Its connections stay open and take requests; nothing is answered."""
    pid = service.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # on a busy machine its threads go on for a moment
    states = Path(f"/proc/{pid}/task").glob
    wait_for(
        lambda: {task.read_text().rpartition(")")[2].split()[0] for task in states("*/stat")} == {"T"}, 30, "a stop"
    )
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@on_kafka
def test_a_database_that_is_away_for_a_while_loses_nothing(
    broker: Broker, workers: Platform, gate: Gate, pairs: range
) -> None:
    workers.environment["DATABASE_URL"] = gate.url
    crew = [
        workers.start(command, name=f"{command}{n}") for n in pairs for command in ("ingest_events", "flush_buffer")
    ]
    broker.send(*orders("A"))
    broker.wait_for_orders(*ids("A"))
    for prefix in "BCD":
        gate.shut()
        broker.send(*orders(prefix))
        for worker in crew:
            wait_for(
                lambda worker=worker: (
                    worker.text.count("_unavailable") >= "ABCD".index(prefix) or "beat_failed" in worker.text
                ),
                20,
                f"{worker.name} to notice",
            )
        gate.reopen()
    broker.wait_for_orders(*ids("A", "B", "C", "D"), seconds=60)
    gate.shut()
    assert [worker.stop() for worker in crew] == [0] * len(crew)
    assert_verified()


@on_kafka
def test_sessions_that_the_server_ends_are_begun_again(broker: Broker, workers: Platform, both: Any) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no sessions")
    crew = both()
    for prefix in "ABCDEFGH":
        broker.send(*orders(prefix))
        wait_for(lambda: BufferedEvent.objects.exists(), 30, "the first order")
        end_sessions()
    broker.wait_for_orders(*ids(*"ABCDEFGH"), seconds=60)
    assert [worker.stop() for worker in crew] == [0, 0]
    assert_verified()


def end_sessions() -> None:
    """All sessions on this database but our own."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        for (session,) in cursor.fetchall():
            with suppress(OperationalError):  # it has ended by itself meanwhile
                cursor.execute(f"KILL CONNECTION {session}")


@on_kafka
def test_a_locked_sqlite_file_is_waited_for(broker: Broker, workers: Platform) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite locks the whole file")
    import sqlite3

    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        impatient = f"{database_url()}?timeout=1"
        crew = [workers.start(name, DATABASE_URL=impatient) for name in ("ingest_events", "flush_buffer")]
        broker.send(*orders("A"))
        wait_for(lambda: crew[0].count("transaction_rerun_total") > 1, 40, "the ingester to meet the lock")
        other.execute("ROLLBACK")
    broker.wait_for_orders(*ids("A"))
    assert [worker.stop() for worker in crew] == [0, 0]
    assert Batch.objects.sent().count() == 5
    assert_verified()
