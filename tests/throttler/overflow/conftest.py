"""Rows and ranges of lanes, and the stores that every test of the interface runs on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

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


@pytest.fixture
def store(transactional_db):
    return DjangoStore()
