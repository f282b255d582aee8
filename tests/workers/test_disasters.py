"""What must survive: SIGKILL, a restored backup, a lost buffer, a topic that was created again."""

import io
import random

import pytest
from django.core.management import call_command
from django.db import connection

from buffer.models import Batch, Bucket, BufferedEvent
from buffer.verify import checks
from outbox.models import DeadLetter, Watermark
from tests.conftest import order
from tests.workers.conftest import eventually

pytestmark = pytest.mark.processes
TABLES = [
    "buffer",
    "outbox.Watermark",
    "outbox.FlowCounter",
    "outbox.BurialKey",
    "outbox.DeadLetter",
    "outbox.FailureGroup",
]


@pytest.fixture(autouse=True)
def _everything_adds_up(workers):
    yield
    workers.close()
    assert [check for check in checks(["transfer-requests"]) if not check.ok] == []


def drain(workers) -> None:
    """Read to the end, then flush until everything is sent."""
    workers.run("ingest_events", "--once")
    Bucket.objects.filter(open_count__gt=0).update(urged="manual", due_at="2020-01-01T00:00:00Z")
    flusher = workers.start("flush_buffer")
    eventually(lambda: not BufferedEvent.objects.open().exists(), "something is not sent")
    workers.end(flusher)


def orders(start: int, end: int) -> list[bytes]:
    return [order(f"A{n:05d}", f"WH-{n % 17}", items={f"S{n % 5}": 1 + n % 3}) for n in range(start, end)]


def names(start: int, end: int) -> list[str]:
    return [f"A{n:05d}" for n in range(start, end)]


def test_killed_workers_lose_nothing_and_repeat_nothing(broker, workers):
    values = orders(0, 3000)
    repeats = random.Random(1).sample(values, 300)
    kills = 0
    for part in range(3):
        ingester, flusher = workers.start("ingest_events"), workers.start("flush_buffer")
        before = BufferedEvent.objects.count()
        broker.send(*values[part * 1000 : (part + 1) * 1000], *repeats[part * 100 : (part + 1) * 100])
        eventually(lambda before=before: BufferedEvent.objects.count() > before, "nothing was ingested")
        for process in (ingester, flusher):
            process.kill()
            process.communicate()
            kills += 1
    workers.start("ingest_events")
    workers.start("flush_buffer")
    eventually(lambda: BufferedEvent.objects.filter(status="sent").count() == 3000, "orders are missing")
    assert kills == 6
    assert broker.orders_sent() == names(0, 3000)
    sums = {}
    for batch in broker.batches().values():
        for item in batch["items"]:
            sums[item["sku"]] = sums.get(item["sku"], 0) + item["quantity"]
    assert sum(sums.values()) == sum(1 + n % 3 for n in range(3000))
    assert not DeadLetter.objects.exists()


def test_a_restored_backup_catches_up_and_sends_no_order_twice(broker, workers):
    broker.send(*orders(0, 200))
    workers.run("ingest_events", "--once")
    backup = io.StringIO()
    call_command("dumpdata", *TABLES, stdout=backup)
    drain(workers)  # what was pending in the backup goes out
    broker.send(*orders(200, 300))
    drain(workers)  # and what the backup has never heard of
    restore(backup.getvalue())
    broker.send(*orders(300, 350))
    drain(workers)
    assert broker.orders_sent() == names(0, 350)
    assert not DeadLetter.objects.exists()


def restore(text: str) -> None:
    for model in (Batch, BufferedEvent, Bucket, Watermark):
        model.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox_flowcounter")
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        call_command("loaddata", file.name, verbosity=0)


def test_a_lost_buffer_is_rebuilt_and_sends_no_order_twice(broker, workers):
    broker.send(*orders(0, 150), b"{poison")
    drain(workers)
    broker.send(order("A00003", "WH-3", items={"S3": 9}), *orders(150, 200))
    workers.run("ingest_events", "--once")
    late = DeadLetter.objects.get(reason="late_event")
    for model in (Batch, BufferedEvent, Bucket, Watermark):
        model.objects.all().delete()
    assert "nothing changed" in workers.run("rebuild_buffer", "--dry-run")
    output = workers.run("rebuild_buffer")
    assert "150 orders already sent, 50 wait" in output
    drain(workers)
    assert broker.orders_sent() == names(0, 200)
    assert list(DeadLetter.objects.filter(reason="late_event").values_list("pk", flat=True)) == [late.pk]
    assert "not empty" in workers.run("rebuild_buffer", code=1)


@pytest.mark.kafka
def test_a_topic_that_was_created_again_alarms_and_loses_nothing(broker, workers):
    broker.send(*orders(0, 50))
    drain(workers)
    broker.delete("transfer-requests")
    broker.create("transfer-requests")
    broker.send(*orders(50, 80))
    output = workers.run("ingest_events", "--once", code=1)
    assert "created again" in output.splitlines()[-1]
    assert "--accept-reset" in output.splitlines()[-1]
    assert Watermark.objects.exclude(alarm="").exists()
    assert BufferedEvent.objects.count() == 50
    workers.run("ingest_events", "--once", "--accept-reset")
    assert not Watermark.objects.exclude(alarm="").exists()
    drain(workers)
    assert broker.orders_sent() == names(0, 80)


@pytest.mark.kafka
def test_two_of_each_share_the_work(broker, workers):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer: one ingester and one flusher (docs/operations.md)")
    started = [
        workers.start(command)
        for command in ("ingest_events", "ingest_events", "flush_buffer", "flush_buffer")
    ]
    for part in range(4):
        broker.send(*orders(part * 500, (part + 1) * 500), key=f"k{part}")
    eventually(lambda: BufferedEvent.objects.filter(status="sent").count() == 2000, "orders are missing")
    assert broker.orders_sent() == names(0, 2000)
    for process in started:
        workers.end(process)
