"""Records that are removed unread under a live throttler: their partition stops, its lanes stand, the others go on."""

import threading
from contextlib import closing

import pytest

from config.kafka import client, topic_name
from outbox.bookkeeping.models import Watermark
from tests.crash.wire import wait_for
from tests.logged import lines
from tests.throttler.worker.conftest import home_of, ids_in, ids_of, notification
from throttler.engine.output_transaction import INPUT, OUTPUT
from throttler.worker.consumer_backend import Notifications, OwnerBackend
from throttler.worker.start import throttle

pytestmark = pytest.mark.django_db(transaction=True)
PASSED, OTHER = 0, 1


@pytest.fixture
def throttler(topics):
    """One that works until the test has ended."""
    stop = threading.Event()
    thread = threading.Thread(target=throttle, args=(stop,))
    thread.start()
    yield
    stop.set()
    thread.join(60)


@pytest.fixture
def pass_by(send, broker):
    """Twice: an answer that was under way may hold what came first."""

    def removed():
        for _ in range(2):
            send(*(notification("gone") for _ in range(5)), partition=PASSED)
            place = client.TopicPartition(topic_name(INPUT), PASSED)
            with closing(client.new_consumer(None)) as consumer:
                end = consumer.end_offsets([place], timeout_ms=10_000)[place]
            if broker is not None:
                broker.delete_records(*place, end)
                continue
            with closing(client.new_admin()) as admin:
                admin.delete_records({place: end})

    return removed


def at_home(partition, count):
    """Notifications of a customer whose home is this partition."""
    customer = next(name for name in map(str, range(100)) if home_of(notification(name)) == partition)
    return [notification(customer) for _ in range(count)]


def alarm(partition):
    row = Watermark.objects.filter(topic=topic_name(INPUT), partition=partition).values_list("alarm", flat=True)
    return row.first() or ""


def is_stopped():
    return "are no longer in the log" in alarm(PASSED)


def restores(caplog):
    return sum(line["event"] == "lanes_restored" for line in lines(caplog))


def sent(values):
    return lambda: set(ids_of(values)) <= {name for names in ids_in(OUTPUT).values() for name in names}


def test_a_throttler_that_stood_still_stops_what_retention_has_passed(throttler, send, pass_by, caplog, monkeypatch):
    frozen, thawed, prepare = threading.Event(), threading.Event(), Notifications.prepare

    def prepare_late(self, batch):
        frozen.set()
        assert thawed.wait(60)
        return prepare(self, batch)

    monkeypatch.setattr(Notifications, "prepare", prepare_late)
    send(*(first := at_home(PASSED, 1)))
    assert frozen.wait(60)
    pass_by()
    thawed.set()
    wait_for(is_stopped, 60, "the partition to be stopped")
    send(*(later := at_home(OTHER, 3)))
    wait_for(sent([*first, *later]), 60, "what is not lost")
    assert (alarm(OTHER), restores(caplog) <= 2) == ("", True), "the lanes are restored once more, not again and again"


def test_a_partition_that_is_full_learns_what_retention_has_passed(throttler, send, pass_by, monkeypatch):
    send(*(first := [*at_home(PASSED, 1), *at_home(OTHER, 1)]))
    wait_for(sent(first), 60, "both partitions to be read")
    monkeypatch.setattr(OwnerBackend, "full", lambda backend: {(backend.topic, PASSED)})
    pass_by()
    wait_for(is_stopped, 60, "the partition to be stopped")
    send(*(later := at_home(OTHER, 3)))
    wait_for(sent(later), 60, "the other partition")
    assert alarm(OTHER) == ""
