"""What changes under a live reader, on both brokers: records that are removed unread, a topic that is created again."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import closing

import pytest
from django.db import OperationalError
from kafka import KafkaConsumer

from config.database.clock import database_now
from config.kafka import client
from config.kafka.consumer import consumer_of
from config.kafka.consumer.writer import Handler
from config.kafka.positions import Mark
from config.kafka.topics import topic_name
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from tests.crash.wire import wait_for
from tests.logged import lines

pytestmark = pytest.mark.django_db(transaction=True)
PARTITIONS, PASSED, OTHER, STOPPED = 3, 0, 1, 2
GROUP = "reading"
FREEZE = b"freeze"
GONE = "are no longer in the log"


class Reading(Handler):
    """Notes what it stores; on request the polling thread stands still in it, or it asks for a pause."""

    name = group = GROUP
    topics = ["removed"]

    def __init__(self):
        self.stored, self.topic_ids = defaultdict(list), set()
        self.frozen, self.thawed = threading.Event(), threading.Event()
        self.full = self.away = False

    def prepare(self, batch):
        if any(record.value == FREEZE for record in batch.records):
            self.frozen.set()
            assert self.thawed.wait(60)
        return True

    def write(self, batch, now):
        if self.away:
            raise OperationalError("the database is away")
        self.topic_ids.update(batch.topic_ids.values())
        for record in batch.records:
            self.stored[record.partition].append(record.offset)

    def park(self, batch, record, error, trace, now):
        raise AssertionError(error)

    def pressure(self):
        return self.full


class Source:
    """The topic, as producers and its retention change it."""

    def __init__(self, topic, broker):
        self.topic, self.broker, self.ends = topic, broker, [0] * PARTITIONS

    def send(self, partition, count=1, value=b"x"):
        with closing(client.new_producer()) as producer:
            for _ in range(count):
                producer.send(self.topic, value=value, partition=partition)
        self.ends[partition] += count

    def remove_all(self, partition):
        if self.broker is not None:
            self.broker.delete_records(self.topic, partition, self.ends[partition])
            return
        with closing(client.new_admin()) as admin:
            admin.delete_records({client.TopicPartition(self.topic, partition): self.ends[partition]})

    def pass_by(self, partition):
        """Twice: an answer that was under way may hold what came first."""
        for _ in range(2):
            self.send(partition, 5)
            self.remove_all(partition)


@pytest.fixture
def source(make_topic, broker):
    return Source(make_topic("removed", PARTITIONS), broker)


@pytest.fixture
def reading(source, caplog):
    """A live reader of which one partition is stopped already, for a reason of its own."""
    Watermarks().advance(topic_name(GROUP), {(source.topic, STOPPED): Mark("", 7)}, database_now())
    handler, stop = Reading(), threading.Event()
    reader = threading.Thread(target=consumer_of(handler, Watermarks(), stop).run)
    reader.start()
    wait_for(lambda: stops(caplog), 60, "the partition to be stopped")  # the last that a stop does
    yield handler
    stop.set()
    handler.thawed.set()
    reader.join(60)


def alarm(partition):
    return Watermark.objects.filter(partition=partition).values_list("alarm", flat=True).first() or ""


def stops(caplog):
    return [line["partition"] for line in lines(caplog) if line["event"] == "partition_stopped"]


def paused(caplog):
    wait_for(lambda: "consumer_paused" in {line["event"] for line in lines(caplog)}, 60, "the pause")


def stored(reading, partition, count):
    wait_for(lambda: len(reading.stored[partition]) == count, 60, f"{count} records of partition {partition}")


def test_a_reader_that_stood_still_stops_what_retention_has_passed_and_nothing_else(source, reading, caplog):
    source.send(PASSED, value=FREEZE)
    assert reading.frozen.wait(60)
    source.pass_by(PASSED)
    reading.thawed.set()
    wait_for(lambda: GONE in alarm(PASSED), 60, "the partition to be stopped")
    source.send(OTHER, 4)
    stored(reading, OTHER, 4)
    assert stops(caplog) == [PASSED], "the other stop is the one of before"
    assert ("the log ends at 0" in alarm(STOPPED), alarm(OTHER)) == (True, "")
    assert max(reading.stored[PASSED]) < source.ends[PASSED] - 5


def test_a_reader_that_waits_at_its_high_water_mark_learns_what_retention_has_passed(source, reading, caplog):
    source.send(OTHER)
    stored(reading, OTHER, 1)
    reading.full = True
    paused(caplog)
    source.pass_by(PASSED)
    wait_for(lambda: GONE in alarm(PASSED), 60, "the partition to be stopped")
    reading.full = False
    source.send(OTHER, 3)
    stored(reading, OTHER, 4)
    assert (stops(caplog), alarm(OTHER)) == ([PASSED], "")


def test_a_reader_that_waits_for_the_database_says_it_when_that_is_back(source, reading, caplog):
    reading.away = True
    source.send(PASSED)
    paused(caplog)
    source.pass_by(PASSED)
    reading.away = False
    wait_for(lambda: GONE in alarm(PASSED), 60, "the partition to be stopped")
    source.send(OTHER, 4)
    stored(reading, OTHER, 4)
    assert (reading.stored[PASSED][:1], stops(caplog), alarm(OTHER)) == ([0], [PASSED], "")


@pytest.mark.parametrize("cut", [client.OffsetAndMetadata(1, "", -1), None])
def test_a_reader_stops_where_a_leader_without_the_whole_log_was_elected(source, reading, caplog, monkeypatch, cut):
    """The position lies within the log again, so that nothing but the client's word tells it."""
    source.send(PASSED, 3)
    stored(reading, PASSED, 3)
    cuts, poll = [{client.TopicPartition(source.topic, PASSED): cut}], KafkaConsumer.poll

    def poll_once_cut(consumer, *args, **options):
        if cuts:
            raise client.LogTruncationError(cuts.pop())
        return poll(consumer, *args, **options)

    monkeypatch.setattr(KafkaConsumer, "poll", poll_once_cut)
    wait_for(lambda: "the log was truncated" in alarm(PASSED), 60, "the partition to be stopped")
    assert (" at 1 " in alarm(PASSED)) == (cut is not None)
    source.send(PASSED)
    source.send(OTHER, 4)
    stored(reading, OTHER, 4)
    assert (len(reading.stored[PASSED]), stops(caplog), alarm(OTHER)) == (3, [PASSED], "")


def make_again(source, make_topic):
    with closing(client.new_admin()) as admin:
        admin.delete_topics([source.topic])
        wait_for(lambda: source.topic not in admin.list_topics(), 30, "the topic to be gone")
    make_topic("removed", PARTITIONS)
    source.send(PASSED, 5)  # more than were there before


only_real = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
ends = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # nothing is left to read


@only_real
@ends
def test_a_reader_that_stood_still_does_not_take_another_topic_for_its_own(source, reading, make_topic):
    source.send(PASSED, value=FREEZE)
    assert reading.frozen.wait(60)
    make_again(source, make_topic)
    reading.thawed.set()
    wait_for(lambda: "created again" in alarm(PASSED), 60, "the partition to be stopped")
    assert (reading.stored[PASSED], len(reading.topic_ids)) == ([0], 1)


@only_real
@ends
def test_a_reader_that_waits_does_not_take_another_topic_for_its_own(source, reading, make_topic, caplog):
    source.send(PASSED)
    stored(reading, PASSED, 1)
    reading.full = True
    paused(caplog)
    make_again(source, make_topic)
    reading.full = False
    wait_for(lambda: "created again" in alarm(PASSED), 60, "the partition to be stopped")
    assert (reading.stored[PASSED], len(reading.topic_ids)) == ([0], 1)
