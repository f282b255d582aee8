"""Rows and ranges of lanes, and the stores that every test of the interface runs on."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from config.environment.databases import parse_cassandra_url
from tests.processes.proxy import Gate
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import LAST_OFFSET, LaneRange, OverflowRow

TODAY = datetime.now(UTC).date()
DAY = timedelta(days=1)
TOPIC = "11111111-2222-3333-4444-555555555555"


def row(offset, customer="c1", **more):
    told = {
        "partition": 0, "customer_id": customer, "topic_id": TOPIC, "offset": offset, "day": TODAY,
        "payload": b'\x00{"it\'s": "\\\xff"}', "headers": b"", "created_us": 1_700_000_000_123_456 + offset,
        "expires_us": 0, "notification_id": f"n-{offset}",
    }  # fmt: skip
    return OverflowRow(**{**told, **more})


def lane(
    customer="c1", drained=-1, upto=LAST_OFFSET, limit=100, day=TODAY - DAY, partition=0, topic=TOPIC, newest=None
):  # fmt: skip
    return LaneRange(partition, customer, topic, drained, upto, day, limit, newest)


def offsets(found, customer="c1", partition=0):
    return [one.offset for one in found[partition, customer]]


@pytest.fixture(params=["django", "cassandra"])
def store(request, transactional_db):
    """Each store, empty; Cassandra's only where TEST_CASSANDRA_URL names a server."""
    if request.param == "django":
        yield DjangoStore()
        return
    with cassandra_store(cassandra_place()) as store:
        yield store


@pytest.fixture(params=["cassandra"])
def cassandra():
    """The one store alone; the parameter's name tells the leg in the name of the test."""
    with cassandra_store(cassandra_place()) as store:
        yield store


@pytest.fixture(params=["cassandra"])
def place():
    """A keyspace that is not there yet."""
    return cassandra_place()


def cassandra_place():
    address = os.environ.get("TEST_CASSANDRA_URL")
    if not address:
        pytest.skip("TEST_CASSANDRA_URL is not set")
    copies = min(3, 1 + address.count(","))  # of a ring that a drill has started, a copy on each of three nodes
    return parse_cassandra_url(f"{address}/spillway_test_{os.getpid()}?replication={copies}")


@contextmanager
def cassandra_store(place):
    """Made, and taken away at the end."""
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    store = module.CassandraStore(place, days=3)
    try:
        store.create()
        yield store
        store.session.execute(f"DROP KEYSPACE {place.keyspace}")
    finally:
        store.close()


@pytest.fixture
def gate(place):
    with closing(Gate(f"cassandra://{place.hosts[0]}:{place.port}")) as gate:
        yield gate


@pytest.fixture
def behind(place, gate):
    """A store whose only way to the server is the gate."""
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    with cassandra_store(place):
        with closing(module.CassandraStore(replace(place, port=gate.port), days=3)) as store:
            yield store
