"""The four rules that cut a batch, with real workers: idle, cap, size, and no idleness without hearing."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from config.database.clock import database_now
from tests.conftest import order
from tests.crash.wire import wait_for
from tests.processes.conftest import Broker, assert_verified

on_kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def ids(count: int, first: int = 0) -> list[str]:
    return [f"A{number:03d}" for number in range(first, first + count)]


def silence() -> timedelta:
    """Since the last order came, by the database's clock."""
    return database_now() - Bucket.objects.get().last_arrival


def reasons() -> list[str]:
    return list(Batch.objects.order_by("sequence").values_list("reason", flat=True))


def test_silence_cuts_one_batch_and_every_arrival_begins_it_anew(broker: Broker, both: Any) -> None:
    both(BUFFER_IDLE_SECONDS="4", BUFFER_CAP_SECONDS="60")
    broker.send(order("A000"))
    for stored, name in enumerate(ids(3, first=1), 1):
        wait_for(lambda n=stored: BufferedEvent.objects.count() == n, 30, f"{stored} orders in the buffer")
        wait_for(lambda: silence() > timedelta(seconds=1.5), 30, "a silence that must not be enough")
        broker.send(order(name))
    broker.wait_for_orders(*ids(4))
    last = BufferedEvent.objects.order_by("created_at").last()
    assert Batch.objects.get().claimed_at - last.created_at >= timedelta(seconds=4)
    assert reasons() == ["idle"]
    assert_verified()


@on_kafka
def test_a_busy_warehouse_is_cut_at_its_cap(broker: Broker, both: Any) -> None:
    both(BUFFER_IDLE_SECONDS="4", BUFFER_CAP_SECONDS="5")
    sent = 0
    while not Batch.objects.exists():
        broker.send(order(f"A{sent:03d}"))
        sent += 1
        assert sent < 300, "never cut"
        time.sleep(0.1)  # the pace of the traffic
    batch = Batch.objects.get(sequence=1)
    assert batch.reason == "cap"
    first = BufferedEvent.objects.order_by("id").values_list("created_at", flat=True)[0]
    assert 5.0 <= (batch.claimed_at - first).total_seconds() < 15.0
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
    wait_for(lambda: silence() > timedelta(seconds=4.5), 30, "more than twice the idle time")
    looked = Bucket.objects.get().due_at
    wait_for(lambda: Bucket.objects.get().due_at > looked, 30, "the flusher to look once more")
    assert broker.batches() == []
    ingest.thaw()
    broker.wait_for_orders(*ids(10))
    assert [len(body["order_ids"]) for body in broker.batches()] == [10]
    assert reasons() == ["idle"]
    assert_verified()
