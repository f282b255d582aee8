"""No idleness without hearing, with a real consumer that is frozen; what cuts a batch else: tests/buffer/flush/test_due.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from config.database.clock import database_now
from tests.conftest import order
from tests.crash.wire import wait_for
from tests.processes.conftest import Broker, assert_verified


def ids(count: int, first: int = 0) -> list[str]:
    return [f"A{number:03d}" for number in range(first, first + count)]


def silence() -> timedelta:
    """Since the last order came, by the database's clock."""
    return database_now() - Bucket.objects.get().last_arrival


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_silence_of_a_consumer_that_hears_nothing_is_not_idleness(broker: Broker, both: Any) -> None:
    ingest, _flush = both()
    broker.send(*[order(name) for name in ids(5)])
    wait_for(lambda: BufferedEvent.objects.count() == 5, 30, "five orders in the buffer")
    ingest.freeze()
    broker.send(*[order(name) for name in ids(5, first=5)])
    wait_for(lambda: silence() > timedelta(seconds=4.5), 30, "more than twice the idle time")
    looked = Bucket.objects.get().due_at
    wait_for(lambda: Bucket.objects.get().due_at > looked, 30, "the flusher to look once more")
    assert broker.batches() == []
    ingest.thaw()
    broker.wait_for_orders(*ids(10))
    assert [len(body["order_ids"]) for body in broker.batches()] == [10]
    assert Batch.objects.get().reason == "idle"
    assert_verified()
