"""How a throttler starts: with the database's time, not before the database is there, and on topics that stay alike."""

import threading
import time
from contextlib import closing
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from django.db import OperationalError

from config.kafka import client, internals, topic_name
from config.kafka.consumer.membership import Membership
from config.kafka.consumer.ports import ConsumerStopped
from outbox.models import DeadLetter, Watermark
from tests.throttler.worker.conftest import home_of, ids_in, ids_of, notification
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT
from throttler.lanes import restore_thread
from throttler.lanes.restore import RefusedPartition
from throttler.lanes.state import CHANGELOG
from throttler.worker import start
from throttler.worker.owner import PartitionOwner

pytestmark = pytest.mark.django_db(transaction=True)
HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_host_whose_clock_is_off_gives_no_fresh_burst_and_expires_nothing(send, run, customer, monkeypatch, hours):
    customer("slow", "6/hour", 2)
    values = [notification("slow", ttl_seconds=1800) for _ in range(6)]
    send(*values)
    run(once=True)
    here = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: here() + hours * HOUR_NS)
    run(once=True)
    assert (ids_in(OUTPUT), ids_in(EXPIRED)) == ({"slow": ids_of(values[:2])}, {})


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_database_whose_clock_was_set_gives_no_fresh_burst_and_stops_nobody(send, run, customer, monkeypatch, hours):
    customer("slow", "6/hour", 2)
    customer("daily", "100/s;3/day", 100)
    values = {name: [notification(name) for _ in range(6)] for name in ("slow", "daily")}
    send(*values["slow"], *values["daily"])
    run(once=True)
    here = start.database_now
    monkeypatch.setattr(start, "database_now", lambda: here() + timedelta(hours=hours))
    send(other := notification("other"))
    run(once=True)
    sent = {"slow": ids_of(values["slow"][:2]), "daily": ids_of(values["daily"][:3]), "other": ids_of([other])}
    assert (ids_in(OUTPUT), ids_in(EXPIRED)) == (sent, {})


def test_a_database_that_is_away_is_waited_for_before_anybody_gives_up_a_partition(send, run, monkeypatch):
    """A member that knows no rates could do nothing with it."""
    told, connect, answers = [], Membership.connect, iter([True, True])

    def database_now():
        told.append("asked")
        if next(answers, False):
            raise OperationalError("the server is away")
        return real()

    real = start.database_now
    monkeypatch.setattr(start, "database_now", database_now)
    monkeypatch.setattr(Membership, "connect", lambda self: told.append("joined") or connect(self))
    send(value := notification("one"))
    run()
    assert told == ["asked", "asked", "asked", "joined"]
    assert ids_in(OUTPUT) == {"one": ids_of([value])}


def test_who_is_told_to_stop_while_the_database_is_away_ends(monkeypatch):
    stop = threading.Event()

    def database_now():
        stop.set()
        raise OperationalError("the server is away")

    monkeypatch.setattr(start, "database_now", database_now)
    monkeypatch.setattr(start, "refuse_unfit_broker", pytest.fail)
    start.throttle(stop)


@pytest.mark.parametrize("topic", [INPUT, OUTPUT, EXPIRED, CHANGELOG])
def test_topics_that_have_other_partitions_than_when_it_began_end_it(run, monkeypatch, topic):
    """Between the first look and the join, too."""
    counted = start.same_counts
    monkeypatch.setattr(start, "same_counts", lambda: counted() | {topic_name(topic): 1})
    with pytest.raises(ConsumerStopped, match=f"{topic} has 2 partitions, at first it had 1"):
        run()


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
@pytest.mark.parametrize("topic", [INPUT, OUTPUT])
def test_partitions_that_are_added_end_it(run, broker, monkeypatch, topic):
    """Whoever leads the group: each compares for itself."""
    adopted, often = PartitionOwner.adopt, partial(client.new_consumer, metadata_max_age_ms=500)
    monkeypatch.setattr(client, "new_consumer", often)

    def and_more(self, *arguments):
        adopted(self, *arguments)
        with closing(client.new_admin()) as admin:
            admin.create_partitions({topic_name(topic): 3}, raise_errors=False)

    monkeypatch.setattr(PartitionOwner, "adopt", and_more)
    with pytest.raises(ConsumerStopped, match=f"{topic} has 3 partitions, at first it had 2"):
        run("a", until_idle=60)


@pytest.fixture
def refuse(monkeypatch):
    """Partitions whose changelog, log and offset do not agree."""
    found, real = set(), restore_thread.restored

    def restored(number, *rest, **options):
        return RefusedPartition(number, "it was truncated") if number in found else real(number, *rest, **options)

    monkeypatch.setattr(restore_thread, "restored", restored)
    return found.update


def test_a_process_that_has_stopped_partitions_only_ends_and_says_so(run, refuse):
    run()  # which reports both
    refuse({0, 1})
    with pytest.raises(ConsumerStopped, match="notifications-in/0: it was truncated"):
        start.throttle(threading.Event())
    assert set(Watermark.objects.values_list("partition", "alarm")) == {
        (0, "it was truncated"),
        (1, "it was truncated"),
    }
    assert DeadLetter.objects.filter(reason="partition_stopped").count() == 2


def test_a_stopped_partition_stops_no_other(send, run, refuse):
    run()
    refuse({0})
    values = [notification(str(number)) for number in range(10)]
    send(*values)
    with pytest.raises(ConsumerStopped, match="notifications-in/0: it was truncated"):
        run()  # as it was to end when it is idle
    left = [value for value in values if home_of(value) == 1]
    assert 0 < len(left) < len(values)
    assert ids_in(OUTPUT) == {msgspec.json.decode(value)["customer_id"]: ids_of([value]) for value in left}
    assert dict(Watermark.objects.values_list("partition", "alarm")) == {0: "it was truncated", 1: ""}


def test_it_says_at_the_start_how_often_a_message_may_leave(run, broker, caplog):
    with caplog.at_level("INFO"):
        run()
    assert ("exactly once" if broker is None else "at least once: run one process") in caplog.text


def test_a_process_whose_name_was_taken_ends(run, monkeypatch):
    monkeypatch.setattr(internals, "is_fenced", lambda _consumer: True)
    with pytest.raises(ConsumerStopped, match="another process works under the name a"):
        run("a")
