"""A throttler whose database is away: what flows meanwhile, with each of the two stores, and what is there afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.models import DeadLetter
from tests.crash.platform import Worker
from tests.crash.wire import wait_for
from tests.processes.proxy import Gate
from tests.processes.throttler.throttlers import Throttlers, has_partitions, throttlers_on
from throttler.overflow.django import OverflowMessage

LOUD, STALL, POLL = 400, 100, 100  # messages


@pytest.fixture
def store(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment that names it."""
    if request.param == "kafka":
        return {}
    if not os.environ.get("TEST_CASSANDRA_URL"):
        pytest.skip("TEST_CASSANDRA_URL is not set")
    keyspace = request.getfixturevalue("keyspace")
    return {"THROTTLER_STORE": "cassandra", "CASSANDRA_URL": f"{keyspace}?replication=1"}


@pytest.fixture
def keyspace() -> Iterator[str]:
    """Made by create_overflow_store."""
    from config.environment.databases import parse_cassandra_url
    from throttler.overflow.cassandra import connected

    url = f"{os.environ['TEST_CASSANDRA_URL']}/spillway_outage_{os.getpid()}"
    yield url
    place = parse_cassandra_url(url)
    session = connected(place)
    session.execute(f"DROP KEYSPACE IF EXISTS {place.keyspace}")
    session.cluster.shutdown()


@pytest.fixture
def throttlers(transactional_db: None, tmp_path: Path, store: Any, gate: Gate) -> Iterator[Throttlers]:
    """Workers reach the database through the gate; 200 messages a second leave for each customer."""
    limits = {"THROTTLER_DEFAULT_RATE": "200/s", "THROTTLER_STALL_RECORDS": f"{STALL}", "KAFKA_POLL_RECORDS": f"{POLL}"}
    with throttlers_on(tmp_path, **limits, **store) as found:
        found.platform.manage("create_overflow_store")
        found.platform.environment["DATABASE_URL"] = gate.url
        yield found


def started(throttlers: Throttlers) -> Worker:
    worker = throttlers.start("a")
    wait_for(lambda: has_partitions(worker), 60, "the throttler to have partitions")
    throttlers.send(1)
    throttlers.assert_all_left_once()
    return worker


def away(gate: Gate, worker: Worker) -> None:
    gate.shut()
    wait_for(lambda: "upkeep_failed" in worker.text, 30, "the throttler to notice")


def another(throttlers: Throttlers, customer: str, apart: bool) -> str:
    """A customer of the same partition, or of another one."""
    home = throttlers.home_of(customer)
    return next(name for name in map(str, range(1000)) if (throttlers.home_of(name) != home) == apart)


@pytest.mark.parametrize("store", ["kafka-cassandra"], indirect=True)
def test_with_rows_in_cassandra_only_letters_wait_for_the_database(throttlers: Throttlers, gate: Gate) -> None:
    worker = started(throttlers)
    away(gate, worker)
    throttlers.poison(throttlers.home_of("a"))
    throttlers.send(LOUD)  # half of it is over the rate
    throttlers.assert_all_left_once()
    assert worker.count("throttler_messages_total", path="drained") > 0
    assert worker.kill() == -9
    gate.reopen()
    assert not DeadLetter.objects.exists()
    worker = throttlers.start("a")
    throttlers.send(LOUD)
    throttlers.assert_all_left_once()
    wait_for(DeadLetter.objects.count, 30, "the letter")
    assert worker.stop() == 0
    assert (DeadLetter.objects.count(), OverflowMessage.objects.count()) == (1, 0)
    throttlers.platform.manage("verify", "--kafka")


@pytest.mark.parametrize("store", ["kafka"], indirect=True)
def test_who_starts_while_the_database_is_away_takes_no_partition_from_others(
    throttlers: Throttlers, gate: Gate
) -> None:
    worker = started(throttlers)
    away(gate, worker)
    late = throttlers.start("b")
    wait_for(lambda: "database_unavailable" in late.text, 60, "the second throttler to notice")
    for _ in range(5):
        throttlers.send(2, [str(number) for number in range(20)])  # of every partition, at the rates known last
        throttlers.assert_all_left_once()
    assert not has_partitions(late)
    gate.reopen()
    wait_for(lambda: has_partitions(late), 60, "the second throttler to have partitions")
    throttlers.send(2, [str(number) for number in range(20)])
    throttlers.assert_all_left_once()
    assert (late.stop(), worker.stop()) == (0, 0)


@pytest.mark.parametrize("store", ["kafka"], indirect=True)
def test_a_partition_that_has_too_much_for_the_database_waits_alone(throttlers: Throttlers, gate: Gate) -> None:
    loud, home = "a", str(throttlers.home_of("a"))
    near, far = (another(throttlers, loud, apart) for apart in (False, True))
    worker = started(throttlers)
    away(gate, worker)
    throttlers.send(LOUD, [loud])
    wait_for(lambda: worker.count("throttler_stalled", partition=home) == 1, 60, "the partition to be full")
    throttlers.send(LOUD, [loud])
    throttlers.send(1, [near])
    for _ in range(5):  # each behind a poll of its own
        sent = throttlers.number
        throttlers.send(1, [far])
        wait_for(lambda sent=sent: last(throttlers, far) == sent, 60, "another partition's message to leave")
    assert last(throttlers, near) < 0
    wait_for(lambda: worker.count("consumer_lag_records", partition=home) > LOUD - POLL, 30, "its lag to be measured")
    gate.reopen()
    throttlers.assert_all_left_once()
    assert last(throttlers, near) > 0
    wait_for(lambda: worker.count("throttler_stalled", partition=home) == 0, 30, "the partition to be read")
    assert worker.stop() == 0
    throttlers.platform.manage("verify", "--kafka")


def last(throttlers: Throttlers, customer: str) -> int:
    """The number of the customer's message that left last."""
    numbers = [record.number for record in throttlers.left() if record.key == customer.encode()]
    return max(numbers, default=-1)
