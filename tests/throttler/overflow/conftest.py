"""Rows and ranges of lanes, and the stores that every test of the interface runs on."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from throttler.overflow.cassandra_url import parse_cassandra_url
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


def lane(customer="c1", drained=-1, upto=LAST_OFFSET, limit=100, day=TODAY - DAY, partition=0, topic=TOPIC):
    return LaneRange(partition, customer, topic, drained, upto, day, limit)


def offsets(found, customer="c1", partition=0):
    return [one.offset for one in found[partition, customer]]


@pytest.fixture(params=["django", "cassandra"])
def store(request, transactional_db):
    """Each store, empty; Cassandra's only where TEST_CASSANDRA_URL names a server."""
    if request.param == "django":
        yield DjangoStore()
        return
    address = os.environ.get("TEST_CASSANDRA_URL")
    if not address:
        pytest.skip("TEST_CASSANDRA_URL is not set")
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    place = parse_cassandra_url(f"{address}/spillway_test_{os.getpid()}?replication=1")
    store = module.CassandraStore(place, days=3)
    try:
        store.create()
        yield store
        store.session.execute(f"DROP KEYSPACE {place.keyspace}")
    finally:
        store.close()
