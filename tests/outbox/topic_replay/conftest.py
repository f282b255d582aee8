"""A broker, a topic with records at chosen times, a consumer that has read them, and the command."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command

from buffer.workers import ingest as consume
from config.kafka import client, topic_name
from tests.config.conftest import broker, make_topic

__all__ = ["broker", "make_topic"]

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
    days=4
)  # a broker refuses times to come


@pytest.fixture
def topic(make_topic: Any) -> str:
    make_topic("transfer-batches")
    return str(make_topic("transfer-requests", 2))


@pytest.fixture
def produce(topic: str) -> Callable[..., None]:
    """Put values at times into a partition."""

    def put(*pairs: tuple[datetime, bytes | None], partition: int = 0, name: str = topic) -> None:
        producer = client.new_producer()
        sent = [
            producer.send(name, value=value, key=b"k", partition=partition,
                          timestamp_ms=int(when.timestamp() * 1000))
            for when, value in pairs
        ]  # fmt: skip
        producer.flush()
        assert all(future.succeeded() for future in sent)
        producer.close()

    return put


@pytest.fixture
def read_all(topic: str) -> Callable[[], None]:
    """Run the flow's own consumer to the end of the log."""
    return lambda: consume(["transfer-requests"], threading.Event(), accept_reset=False, once=True, until_idle=None)


@pytest.fixture
def replay(topic: str) -> Callable[..., dict[str, int]]:
    """The command; returns what it said of the records."""

    def run(since: datetime = DAY, until: datetime = DAY + timedelta(days=1), **options: Any) -> dict[str, int]:
        out = io.StringIO()
        name = options.pop("name", "transfer-requests")
        call_command(
            "replay_topic", name, stdout=out, stderr=io.StringIO(),
            **{"from": since.isoformat(), "to": until.isoformat(), **options},
        )  # fmt: skip
        return numbers(out.getvalue())

    return run


def numbers(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        label, _, value = line.rpartition(" ")
        if value.replace(",", "").isdigit():
            found[label.strip()] = int(value.replace(",", ""))
    return found


def prefixed(name: str) -> str:
    return topic_name(name)
