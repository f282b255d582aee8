"""Records that are removed unread under each live worker of a group: it stops that partition alone, and says so.

By log, letter, home and gauge. The throttler's own are in tests/throttler/worker/test_removed.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pytest
from django.conf import settings as configured

from buffer import workers
from buffer.ingest.handler import Ingest
from buffer.ledger.handler import Track
from buffer.ledger.topics import sources
from config.admin.home import needs_one_by_one
from config.database.clock import database_now
from config.kafka import client
from config.telemetry import metrics
from outbox.bookkeeping.models import Watermark
from outbox.intake.handler import Intake
from outbox.letters.models import DeadLetter
from outbox.workers import start
from outbox.workers.listen import Listen
from tests.config.conftest import broker, make_topic
from tests.crash.wire import wait_for
from tests.exported import exported
from tests.logged import lines

__all__ = ["broker", "make_topic"]
pytestmark = pytest.mark.django_db(transaction=True)
PARTITIONS, ASLEEP, WAITING, OTHER = 3, 0, 1, 2  # passed while the worker stands still, while it waits; never
GONE = "are no longer in the log"


@dataclass
class Worker:
    """A worker of a flow: its handler, the topics it needs, and what it is started with."""

    handler: type
    topics: Callable[[], list[str]]
    run: Callable[[threading.Event], None]


WORKERS = {
    "ingest_events": Worker(Ingest, lambda: ["transfer-requests"], lambda stop: workers.ingest(None, stop)),
    "track_inventory": Worker(Track, lambda: Track().topics, workers.track),
    "listen_outbox": Worker(Listen, lambda: [configured.OUTBOX_CDC_TOPIC], start.listen),
    "ingest_messages": Worker(Intake, lambda: Intake().topics, start.take_in),
}


class Live:
    """A worker at work on a topic that producers and retention change; it stands still or waits when it is told."""

    def __init__(self, topic, broker):
        self.topic, self.broker, self.ends = topic, broker, [0] * PARTITIONS
        self.frozen, self.thawed, self.full = threading.Event(), threading.Event(), False

    def send(self, partition, count=1):
        with closing(client.new_producer()) as producer:
            for _ in range(count):
                producer.send(self.topic, value=b"unreadable", partition=partition)
        self.ends[partition] += count

    def pass_by(self, partition):
        """Twice: an answer that was under way may hold what came first."""
        for _ in range(2):
            self.send(partition, 5)
            if self.broker is not None:
                self.broker.delete_records(self.topic, partition, self.ends[partition])
                continue
            with closing(client.new_admin()) as admin:
                admin.delete_records({client.TopicPartition(self.topic, partition): self.ends[partition]})

    def mark(self, partition):
        return Watermark.objects.filter(topic=self.topic, partition=partition).first()

    def is_stopped(self, partition):
        mark = self.mark(partition)
        return mark is not None and GONE in mark.alarm

    def has_read(self, partition):
        mark = self.mark(partition)
        return mark is not None and (mark.next_offset, mark.alarm) == (self.ends[partition], "")


@pytest.fixture(params=WORKERS)
def live(request, make_topic, broker, monkeypatch):
    worker = WORKERS[request.param]
    first, *_others = [make_topic(name, PARTITIONS) for name in worker.topics()]
    sources.cache_clear()  # they have this test's prefix
    found, stop, prepare = Live(first, broker), threading.Event(), worker.handler.prepare

    def prepare_late(handler, batch):
        if ASLEEP in {record.partition for record in batch.records}:
            found.frozen.set()
            assert found.thawed.wait(60)
        return prepare(handler, batch)

    monkeypatch.setattr(worker.handler, "prepare", prepare_late)
    monkeypatch.setattr(worker.handler, "pressure", lambda handler: found.full)
    thread = threading.Thread(target=worker.run, args=[stop])
    thread.start()
    yield found
    stop.set()
    found.thawed.set()
    thread.join(60)
    sources.cache_clear()


def on_home(topic):
    """The stopped partitions, if one line of home says how many or which; they stopped for one reason."""
    titles = [need.title for need in needs_one_by_one(database_now()) if f" {topic}: " in need.key]
    stopped = sorted(Watermark.objects.filter(topic=topic).exclude(alarm="").values_list("partition", flat=True))
    words = f"{len(stopped)} partitions are stopped" if len(stopped) > 1 else f"partition {stopped[0]} is stopped"
    return stopped if len(titles) == 1 and titles[0].endswith(words) else titles


def said_of(topic, caplog):
    """The stopped partitions of the topic as log, letters, home (and with it whoever is told) and gauge name them."""
    stops = [line for line in lines(caplog) if line["event"] == "partition_stopped"]
    letters = DeadLetter.objects.filter(reason="partition_stopped")
    return [
        sorted(line["partition"] for line in stops if line["topic"] == topic),
        sorted(letters.filter(topic=topic).values_list("partition", flat=True)),
        on_home(topic),
        sorted(int(labels[-1]) for labels, on in exported(metrics.PARTITION_STOPPED, topic=topic).items() if on),
    ]


def test_a_live_worker_stops_what_retention_has_passed_and_nothing_else(live, caplog):
    live.send(ASLEEP)
    assert live.frozen.wait(60)
    live.pass_by(ASLEEP)
    live.thawed.set()
    wait_for(lambda: live.is_stopped(ASLEEP), 60, "the partition to be stopped")
    live.send(OTHER, 2)
    wait_for(lambda: live.has_read(OTHER), 60, "the others to be read on")
    wait_for(lambda: said_of(live.topic, caplog) == [[ASLEEP]] * 4, 10, "the stop to be said")

    live.full = True
    wait_for(lambda: "consumer_paused" in {line["event"] for line in lines(caplog)}, 60, "the pause")
    live.pass_by(WAITING)
    wait_for(lambda: live.is_stopped(WAITING), 60, "the other partition to be stopped")
    live.full = False
    live.send(OTHER, 2)
    wait_for(lambda: live.has_read(OTHER), 60, "the last one to be read on")
    wait_for(lambda: said_of(live.topic, caplog) == [[ASLEEP, WAITING]] * 4, 10, "both stops to be said")
    assert live.is_stopped(ASLEEP), "the second stop has not lifted the first"
