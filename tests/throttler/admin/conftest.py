"""A customer who waits, the owners that report, and the people who look at them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from config.database.clock import database_now
from tests.config.admin.conftest import _long_runway, _plain_http, boss
from throttler.lanes.read_model import period_of
from throttler.messages import microseconds
from throttler.models import Customer, CustomerPeriod, Lane, LaneOwner
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import OverflowRow

__all__ = ["_long_runway", "_plain_http", "boss"]
TOPIC_ID = "t1"
DAY_US = 86_400_000_000
PAGE = "/admin/throttler/customer/harbour-foods/change/"
LIST = "/admin/throttler/customer/"


def lever(name: str, customer: str = "harbour-foods", more: str = "") -> str:
    return f"{LIST}lever/{name}/?id={customer}{more}"


def add_customer(name: str = "harbour-foods", rates: str = "2/s;150000/day", **told: Any) -> Customer:
    now = database_now()
    return Customer.objects.create(customer_id=name, rates=rates, created_at=now, updated_at=now, **told)


def add_lane(
    name: str = "harbour-foods", backlog: int = 70_140, age: timedelta = timedelta(hours=5, minutes=34), **told: Any
) -> Lane:
    now = database_now()
    today = microseconds(now) - microseconds(now) % DAY_US
    values = {
        "partition": 5, "topic_id": TOPIC_ID, "backlog": backlog, "first": 1_000, "drained": 2_000,
        "seen": 90_000, "day": (now - age).date() if backlog else None, "oldest_at": now - age if backlog else None,
        "updated_at": now,
        "limiter": {"tat": [microseconds(now)], "quota": [[DAY_US, today, 39_060]]}, **told,
    }  # fmt: skip
    return Lane.objects.create(customer_id=name, **values)


def add_owner(
    name: str = "throttler-2", partitions: tuple[int, ...] = (4, 5), ago: float = 0.4, **told: Any
) -> LaneOwner:
    when = database_now() - timedelta(seconds=ago)
    return LaneOwner.objects.create(name=name, partitions=list(partitions), updated_at=when, **told)


def add_periods(name: str = "harbour-foods", hours: float = 13, arriving: float = 3.5, leaving: float = 2.0) -> None:
    """Since so many hours more came than left, up to now."""
    now, backlog, rows = database_now(), 0.0, []
    start = period_of(now - timedelta(hours=hours))
    while start <= now:
        seconds = min(300.0, (now - start).total_seconds())
        backlog += (arriving - leaving) * seconds
        rows.append(CustomerPeriod(
            customer_id=name, partition=5, start=start, buffered=round(arriving * seconds),
            drained=round(leaving * seconds), backlog=max(0, round(backlog)),
        ))  # fmt: skip
        start += timedelta(minutes=5)
    CustomerPeriod.objects.bulk_create(rows)


def stored(offset: int, name: str = "harbour-foods", payload: bytes = b"", **told: Any) -> OverflowRow:
    now = datetime.now(UTC)
    payload = payload or (
        b'{"notification_id": "n-%d", "customer_id": "%s", "recipient": "anna@example.com", '
        b'"message": {"text": "Dear Anna"}, "created_at": "2026-11-23T08:00:00Z"}' % (offset, name.encode())
    )
    values = {
        "partition": 5, "customer_id": name, "topic_id": TOPIC_ID, "offset": offset, "day": now.date(),
        "payload": payload, "headers": b"", "created_us": microseconds(now) - 60_000_000, "expires_us": 0,
        "notification_id": f"n-{offset}", **told,
    }  # fmt: skip
    return OverflowRow(**values)


def store(*rows: OverflowRow) -> None:
    DjangoStore().store(rows)


@pytest.fixture
def waiting(db: None) -> SimpleNamespace:
    """More arrives than may leave: it expires within the hour or so."""
    add_periods()
    return SimpleNamespace(row=add_customer(), lane=add_lane(), owner=add_owner())
