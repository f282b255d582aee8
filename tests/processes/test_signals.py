"""SIGTERM at any moment: exit code 0, and nothing half."""

from __future__ import annotations

import random
import time

import pytest

from tests.crash.platform import Platform, Worker
from tests.crash.traffic import traffic
from tests.crash.wire import Source, orders_in, wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
SAMPLES = traffic(1500, 60, 4)
LIVES = 3


def test_workers_told_to_stop_at_any_moment_leave_nothing_half(broker: Broker, workers: Platform) -> None:
    rng = random.Random(LIVES)
    source = Source(broker.wire, SAMPLES, LIVES)
    source.start()
    for life in range(LIVES):
        pair = started(workers, BUFFER_CAP_SECONDS="4")
        source.more()
        time.sleep(rng.random() * 1.5 if life else 0.0)
        assert [worker.stop() for worker in pair] == [0, 0]
        assert "Traceback" not in "".join(worker.text for worker in pair)
    source.finish()
    ingest, flush = started(workers)
    wait_for(lambda: len(orders_in(broker.deliveries())) >= 1500, 60, "1500 orders")
    wait_for(lambda: broker.wire.lag() == 0, 20, "every record to be committed")
    assert (ingest.stop(), flush.stop()) == (0, 0)
    sent = orders_in(broker.deliveries())
    assert len(sent) == len(set(sent)) == 1500
    assert_verified()


def started(workers: Platform, **environment: str) -> list[Worker]:
    """An ingester and a flusher that have taken over what SIGTERM does."""
    pair = [workers.start("ingest_events", **environment), workers.start("flush_buffer")]
    for worker in pair:
        wait_for(worker.metrics, 30, f"{worker.name} to be up")
    return pair


def test_once_and_until_idle_end_by_themselves(broker: Broker, workers: Platform) -> None:
    broker.wire.produce(SAMPLES[:200])
    assert workers.manage("ingest_events", "--once", BUFFER_CAP_SECONDS="4").returncode == 0
    assert workers.manage("flush_buffer", "--until-idle", "8").returncode == 0
    orders = {(sample.location, sample.order) for sample in SAMPLES[:200] if sample.version}
    assert set(orders_in(broker.deliveries())) == orders
    assert_verified()


def test_what_cannot_work_is_one_line_and_exit_code_1(broker: Broker, workers: Platform) -> None:
    cases = [
        ("ingest_events", "KAFKA_TOPIC_PREFIX", "nowhere.", "create_topics"),
        ("ingest_events", "KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1", "KAFKA_BOOTSTRAP_SERVERS"),
        ("flush_buffer", "BUFFER_IDLE_SECONDS", "soon", "BUFFER_IDLE_SECONDS"),
    ]
    started = [workers.start(command, name=said, **{name: value}) for command, name, value, said in cases]
    for worker in started:
        assert worker.end(60) == 1
        (line,) = [line for line in worker.text.splitlines() if not line.startswith("{")]
        assert worker.name in line
