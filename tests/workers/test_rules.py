"""Idle, cap, size and lag with the real processes and the database's own clock."""

import itertools
import threading

import pytest

from buffer.models import Batch, Bucket, BufferedEvent
from buffer.verify import checks
from outbox.models import DeadLetter
from tests.conftest import order
from tests.workers.conftest import eventually

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _everything_adds_up(workers):
    yield
    workers.close()
    assert [check for check in checks(["transfer-requests"]) if not check.ok] == []


def reasons() -> set[str]:
    return set(Batch.objects.values_list("reason", flat=True))


def all_sent(number: int) -> bool:
    return BufferedEvent.objects.filter(status="sent").count() == number


def test_a_quiet_warehouse_becomes_one_batch(broker, workers):
    ingester, flusher = workers.start("ingest_events"), workers.start("flush_buffer")
    broker.send(*[order(f"A{n}", items={"S1": n + 1}) for n in range(20)], b"{poison")
    eventually(lambda: all_sent(20), "no batch was sent")
    assert reasons() == {"idle"}
    (batch,) = broker.batches().values()
    assert sorted(batch["order_ids"]) == sorted(f"A{n}" for n in range(20))
    assert batch["items"] == [{"sku": "S1", "quantity": sum(range(1, 21))}]
    assert bytes(DeadLetter.objects.get().payload) == b"{poison"
    workers.end(ingester)
    workers.end(flusher)


def test_a_warehouse_that_is_never_quiet_is_flushed_at_its_cap(broker, workers):
    timings = {"BUFFER_IDLE_SECONDS": "3", "BUFFER_CAP_SECONDS": "4"}
    workers.start("ingest_events", **timings)
    workers.start("flush_buffer", **timings)
    ended = threading.Event()
    numbers = itertools.count()

    def trickle():
        while not ended.wait(0.2):
            broker.send(order(f"A{next(numbers)}"))

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        eventually(lambda: "cap" in reasons(), "the cap did not count")
    finally:
        ended.set()
        thread.join()


def test_a_full_warehouse_is_flushed_at_once_with_its_leftovers(broker, workers):
    long = {"BUFFER_IDLE_SECONDS": "600", "BUFFER_CAP_SECONDS": "600", "BUFFER_MAX_BATCH": "10"}
    workers.start("ingest_events", **long)
    workers.start("flush_buffer", **long)
    broker.send(*[order(f"A{n:02d}") for n in range(25)])
    eventually(lambda: all_sent(25), "size did not count")
    assert reasons() <= {"size", "leftover"}
    assert sorted(len(batch["order_ids"]) for batch in broker.batches().values()) in ([5, 10, 10], [10, 15])


def test_silence_of_a_dead_ingester_is_not_idleness(broker, workers):
    ingester = workers.start("ingest_events")
    broker.send(order("A1"))
    eventually(lambda: Bucket.objects.filter(open_count=1).exists(), "the order was not ingested")
    ingester.kill()
    ingester.communicate()
    workers.start("flush_buffer")
    was_due = Bucket.objects.get().due_at
    eventually(
        lambda: Bucket.objects.get().due_at != was_due or Batch.objects.exists(), "nobody looked at it"
    )
    assert not Batch.objects.exists()
    workers.start("ingest_events")
    eventually(lambda: all_sent(1), "no batch although the ingester is back")


def test_a_missing_topic_is_one_line(broker, workers):
    output = workers.run("ingest_events", "--once", code=1, KAFKA_TOPIC_PREFIX="nowhere.")
    assert (
        output.strip()
        == "CommandError: topic nowhere.transfer-requests does not exist: create_topics makes it"
    )
