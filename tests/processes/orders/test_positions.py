"""Topics that are made anew, databases that are older than their offsets, buffers that are empty."""

from __future__ import annotations

from typing import Any

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.crash.platform import Platform, Worker
from tests.crash.wire import REQUESTS, wait_for
from tests.processes import backup
from tests.processes.conftest import PARTITIONS, Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def orders(prefix: str, count: int, places: int = 8, quantity: int = 1) -> list[bytes]:
    return [order(f"{prefix}{n:03d}", f"WH-{n % places}", items={"S1": quantity}) for n in range(count)]


def ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{n:03d}" for n in range(count)]


def recreate(broker: Broker) -> None:
    broker.wire.delete(REQUESTS)
    broker.wire.create(REQUESTS, PARTITIONS)


def stopped_with_one_line(ingest: Worker) -> str:
    """It ended by itself with exit code 1, and what is no log line is one line; that line."""
    assert ingest.end(60) == 1
    (line,) = [line for line in ingest.text.splitlines() if not line.startswith("{")]
    return line


def test_a_topic_created_again_stops_the_ingester_until_it_is_accepted(
    broker: Broker, both: Any, workers: Platform
) -> None:
    """The new topic is as long as the old one: by offsets alone nobody would notice."""
    ingest, _flush = both()
    broker.send(*orders("A", 40))
    broker.wait_for_orders(*ids("A", 40))
    assert ingest.stop() == 0
    recreate(broker)
    broker.send(*orders("B", 40))
    line = stopped_with_one_line(workers.start("ingest_events"))
    assert "deleted and created again" in line
    assert "--accept-reset" in line
    assert set(Watermark.objects.exclude(alarm="").values_list("partition", flat=True))
    assert workers.manage("doctor", check=False).returncode == 1
    workers.start("ingest_events", "--accept-reset")
    broker.send(*orders("C", 10))
    broker.wait_for_orders(*ids("A", 40), *ids("B", 40), *ids("C", 10))
    assert not Watermark.objects.exclude(alarm="").exists()
    assert_verified()


def test_a_topic_created_again_under_a_running_ingester_stops_it(broker: Broker, both: Any, workers: Platform) -> None:
    ingest, _flush = both(BUFFER_IDLE_SECONDS="8")
    broker.send(*orders("A", 40))
    wait_for(lambda: BufferedEvent.objects.count() == 40, 30, "40 orders in the buffer")
    recreate(broker)
    broker.send(*orders("B", 60))
    assert "created again" in stopped_with_one_line(ingest)
    workers.start("ingest_events", "--accept-reset")
    broker.wait_for_orders(*ids("A", 40), *ids("B", 60), seconds=60)
    assert set(DeadLetter.objects.values_list("reason", flat=True)) == {"partition_stopped"}
    assert_verified()


def test_a_restored_backup_catches_up_and_sends_nothing_twice(broker: Broker, workers: Platform) -> None:
    """In the backup 30 orders are due; since then they changed, went out, and 20 more came and went."""
    ingest = workers.start("ingest_events", BUFFER_CAP_SECONDS="4")
    broker.send(*orders("A", 30, quantity=1), b"{poison")
    wait_for(lambda: BufferedEvent.objects.count() == 30, 30, "30 orders in the buffer")
    assert ingest.stop() == 0
    old = backup.take()
    ingest = workers.start("ingest_events", name="second")
    broker.send(*orders("A", 15, quantity=5))
    wait_for(lambda: BufferedEvent.objects.filter(revision=1).count() == 15, 30, "15 changed orders")
    flush = workers.start("flush_buffer")
    broker.send(*orders("B", 20), b"{more poison")
    broker.wait_for_orders(*ids("A", 30), *ids("B", 20))
    assert (ingest.stop(), flush.stop()) == (0, 0)

    backup.restore(old)
    flush = workers.start("flush_buffer")
    wait_for(lambda: "waits_for_ingestion" in flush.text, 30, "the flusher to find itself in an old database")
    workers.start("ingest_events", name="third")
    broker.send(*orders("C", 10))
    broker.wait_for_orders(*ids("A", 30), *ids("B", 20), *ids("C", 10))
    assert sum(item["quantity"] for body in broker.batches() for item in body["items"]) == 15 * 5 + 15 + 20 + 10
    assert DeadLetter.objects.count() == 2
    assert_verified()


def test_a_rebuilt_buffer_sends_no_order_twice(broker: Broker, both: Any, workers: Platform) -> None:
    ingest, flush = both()
    broker.send(*orders("A", 40))
    broker.send(*orders("A", 10, quantity=4), b"{poison")
    broker.wait_for_orders(*ids("A", 40))
    assert flush.stop() == 0
    broker.send(*orders("B", 20))
    wait_for(lambda: BufferedEvent.objects.pending().count() == 20, 30, "20 orders in the buffer")
    assert ingest.stop() == 0
    lose_the_buffer()
    assert "20 wait for a batch" in workers.manage("rebuild_buffer").stdout
    assert BufferedEvent.objects.filter(status="sent").count() == 40
    both()
    broker.send(*orders("C", 10))
    broker.wait_for_orders(*ids("A", 40), *ids("B", 20), *ids("C", 10))
    assert_verified()


def lose_the_buffer() -> None:
    for model in (BufferedEvent, Bucket, Batch):
        model.objects.all().delete()


@pytest.mark.parametrize(("point", "stored"), [("written", 0), ("rebuilt", 10)])
def test_a_rebuild_that_is_killed_is_simply_run_again(
    broker: Broker, both: Any, workers: Platform, point: str, stored: int
) -> None:
    """Killed before its first commit, and after it, with most of the topic unread."""
    ingest, flush = both()
    changed = orders("A", 10, places=1, quantity=4)
    broker.send(*orders("A", 40, places=1), *changed, b"{poison", key="WH-0")
    broker.wait_for_orders(*ids("A", 40))
    assert flush.stop() == 0
    broker.send(*orders("B", 20, places=1))
    wait_for(lambda: BufferedEvent.objects.pending().count() == 20, 30, "20 orders in the buffer")
    assert ingest.stop() == 0
    lose_the_buffer()
    killed = workers.run(
        ["-m", "tests.processes.saboteur", point, "kill", "rebuild_buffer"], "killed", {"KAFKA_POLL_RECORDS": "10"}
    )
    assert killed.end() == -9
    assert BufferedEvent.objects.count() == stored
    assert "20 wait for a batch" in workers.manage("rebuild_buffer", KAFKA_POLL_RECORDS="10").stdout
    both()
    broker.send(*orders("C", 10, places=1))
    broker.wait_for_orders(*ids("A", 40), *ids("B", 20), *ids("C", 10))
    assert_verified()
