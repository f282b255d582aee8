"""The four rules that cut a batch, with real workers: idle, cap, size, and no idleness without hearing."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from buffer.models import Batch, BufferedEvent
from tests.conftest import order
from tests.crash.wire import wait_for
from tests.processes.conftest import Broker, assert_verified

on_kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def ids(count: int, first: int = 0) -> list[str]:
    return [f"A{number:03d}" for number in range(first, first + count)]


def reasons() -> list[str]:
    return list(Batch.objects.order_by("sequence").values_list("reason", flat=True))


def test_silence_cuts_one_batch_and_every_arrival_begins_it_anew(broker: Broker, both: Any) -> None:
    both(BUFFER_IDLE_SECONDS="1.5", BUFFER_CAP_SECONDS="60")
    broker.send(order("A000"))
    wait_for(lambda: BufferedEvent.objects.count() == 1, 30, "the first order in the buffer")
    for name in ids(3, first=1):
        time.sleep(0.6)  # the silence that must not be enough
        broker.send(order(name))
    last = BufferedEvent.objects.count() and datetime.now().timestamp()
    broker.wait_for_orders(*ids(4))
    (body,) = broker.batches()
    assert datetime.fromisoformat(body["flushed_at"]).timestamp() - last > 1.0
    assert reasons() == ["idle"]
    assert_verified()


@on_kafka
def test_a_busy_warehouse_is_cut_at_its_cap(broker: Broker, both: Any) -> None:
    both(BUFFER_IDLE_SECONDS="1.5", BUFFER_CAP_SECONDS="2.5")
    sent = 0
    while not Batch.objects.exists():
        broker.send(order(f"A{sent:03d}"))
        sent += 1
        assert sent < 300, "never cut"
        time.sleep(0.1)
    batch = Batch.objects.get(sequence=1)
    assert batch.reason == "cap"
    first = BufferedEvent.objects.order_by("id").values_list("created_at", flat=True)[0]
    assert 2.5 <= (batch.claimed_at - first).total_seconds() < 6.0
    broker.wait_for_orders(*ids(sent))
    assert_verified()


def test_a_full_bucket_is_cut_at_once_and_what_is_left_over_with_it(broker: Broker, both: Any) -> None:
    both(BUFFER_IDLE_SECONDS="60", BUFFER_CAP_SECONDS="90", BUFFER_MAX_BATCH="50")
    broker.send(*[order(name) for name in ids(120)])
    broker.wait_for_orders(*ids(120))
    assert sorted(len(body["order_ids"]) for body in broker.batches()) == [20, 50, 50]
    assert "size" in reasons()
    assert set(reasons()) <= {"size", "leftover"}
    assert_verified()


@on_kafka
def test_silence_of_a_consumer_that_hears_nothing_is_not_idleness(broker: Broker, both: Any) -> None:
    ingest, _flush = both()
    broker.send(*[order(name) for name in ids(5)])
    wait_for(lambda: BufferedEvent.objects.count() == 5, 30, "five orders in the buffer")
    ingest.freeze()
    broker.send(*[order(name) for name in ids(5, first=5)])
    time.sleep(2.5)  # more than twice the idle time, in which nothing must happen
    assert broker.batches() == []
    ingest.thaw()
    broker.wait_for_orders(*ids(10))
    assert [len(body["order_ids"]) for body in broker.batches()] == [10]
    assert reasons() == ["idle"]
    assert_verified()
