"""Connections to the broker that are cut in the middle of what a throttler does, and are there again a moment later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.crash.platform import Worker
from tests.crash.throttler.throttlers import has_partitions
from tests.crash.wire import wait_for
from tests.processes.conftest import kafka_servers
from tests.processes.proxy import BrokerGate
from tests.processes.throttler.hasty import LIMIT
from tests.processes.throttler.throttlers import Throttlers, throttlers_on

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(connection.vendor == "sqlite", reason="a minute beside a server, which has no part in it"),
]
# Requests, by their numbers in Kafka's protocol, in the order of a transaction and of what follows when it fails.
REQUESTS = {
    "its partitions are named": 24, "records": 0, "the group is named": 25, "offsets": 28, "the commit": 26,
}  # fmt: skip
RECOVERY = {"the producer is made anew": 22, "committed offsets": 9, "ends of the logs": 2}
POINTS = ["decided", "overflow stored", "transaction committed", "partition restored"]  # nothing is being asked
EACH = 3
AWAY = 0.5  # seconds


@pytest.fixture
def gate() -> Iterator[BrokerGate]:
    found = BrokerGate(kafka_servers())
    yield found
    found.close()


@pytest.fixture
def throttlers(transactional_db: None, tmp_path: Path, gate: BrokerGate) -> Iterator[Throttlers]:
    with throttlers_on(tmp_path, gate) as found:
        yield found


def restored(gate: BrokerGate) -> None:
    time.sleep(AWAY)
    gate.reopen()


def test_a_connection_that_is_cut_at_any_request_costs_no_message(throttlers: Throttlers, gate: BrokerGate) -> None:
    worker = throttlers.platform.launch(["-m", "tests.processes.throttler.hasty", "run_throttler"], "hasty", {})
    wait_for(lambda: has_partitions(worker), 60, "the throttler to have partitions")
    for moment in ("before", "behind"):
        for what, api in REQUESTS.items():
            gate.cut_at(api, moment)
            throttlers.send(EACH)
            assert gate.cut.wait(30), f"nobody asked for {what}"
            restored(gate)
            throttlers.assert_all_left_once()
        for what, api in RECOVERY.items():
            gate.cut_at(REQUESTS["the commit"], moment)
            throttlers.send(EACH)
            assert gate.cut.wait(30), "nobody asked for the commit"
            time.sleep(LIMIT + AWAY)  # the outcome is unknown
            gate.cut_at(api, moment)
            gate.reopen()
            assert gate.cut.wait(30), f"nobody asked for {what}"
            restored(gate)
            throttlers.assert_all_left_once()
    assert worker.stop() == 0
    assert "owner_failed" not in worker.text
    throttlers.assert_all_left_once()


@pytest.mark.parametrize("away", [0.0, 4.0, 12.0])
def test_a_throttler_that_is_told_to_stop_while_the_broker_is_away_ends(
    throttlers: Throttlers, gate: BrokerGate, away: float
) -> None:
    worker = throttlers.start("a")
    wait_for(lambda: has_partitions(worker), 60, "the throttler to have partitions")
    throttlers.send(4 * EACH)  # most of it waits
    throttlers.wait_for(1)
    gate.shut()
    time.sleep(away)  # nobody has noticed, a call waits for its answer, the outcome of a transaction is unknown
    assert worker.stop(10) == 0
    gate.reopen()
    throttlers.start("a")
    throttlers.assert_all_left_once()


def test_a_connection_that_is_cut_between_two_requests_costs_no_message(
    throttlers: Throttlers, gate: BrokerGate
) -> None:
    for point in POINTS:
        throttlers.send(2 * EACH)
        worker: Worker = throttlers.sabotaged(point, "freeze", "a")
        wait_for(lambda worker=worker: worker.frozen, 60, f"the throttler to freeze at {point!r}")
        gate.shut()
        worker.thaw()
        restored(gate)
        throttlers.assert_all_left_once()
        assert worker.stop() == 0, point
