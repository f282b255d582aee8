"""An alarm, or a reset, is the owner's to say: nothing is done about it before the group has confirmed who that is."""

import math
import threading
import time
from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.consumer import Consumer
from config.kafka.consumer.loop import LogEnds
from config.kafka.consumer.ports import Follower
from config.kafka.positions import Start, Stopped
from config.telemetry import metrics
from tests.exported import exported

TP = ("orders", 0)


class Client:
    """A client that has one partition."""

    def __init__(self):
        self.sought, self.running = [], set()

    def assignment(self):
        return {client.TopicPartition(*TP)}

    def group_metadata(self):
        return None

    def seek(self, tp, offset):
        self.sought.append(offset)

    def pause(self, *tps):
        self.running -= set(tps)

    def resume(self, *tps):
        self.running |= set(tps)


class Placing:
    """Says what a test wants it to; notes what was confirmed, which it can put off."""

    def __init__(self):
        self.start, self.asked, self.sure, self.away = Stopped("it was truncated"), 0, {}, False

    def place(self, consumer, waiting):
        self.asked += 1
        return dict.fromkeys(waiting, self.start)

    def confirmed(self, starts):
        if not self.away:
            self.sure |= starts
        return not self.away


@pytest.fixture
def heard(monkeypatch):
    """When the group was last known to have us."""
    found = SimpleNamespace(at=-math.inf)
    monkeypatch.setattr("config.kafka.internals.confirmed_at", lambda _consumer: found.at)
    monkeypatch.setattr("config.kafka.internals.topic_id_of", lambda _consumer, _topic: "")
    return found


@pytest.fixture
def consumer(heard):
    source = SimpleNamespace(topics=["orders"], group="g", name="doubting", gathers=False)
    found = Consumer(source, lambda _client: None, threading.Event(), follower=Follower())
    found.member.consumer = Client()
    found.log_ends, found.placing = LogEnds(found.member.consumer, "g"), Placing()
    found.member.assigned(found.member.consumer.assignment())
    return found


def shown():
    return list(exported(metrics.PARTITION_STOPPED, group="g").values())


def test_a_partition_is_stopped_once_the_group_has_answered_a_later_heartbeat(consumer, heard):
    heard.at = time.monotonic()  # before it was placed: whoever has it now may have changed what was seen
    for _ in range(3):
        consumer._place()
    assert (consumer.member.stopped, consumer.placing.sure, consumer.placing.asked) == ({}, {}, 1)
    assert consumer.member.unplaced, "it is not idle"
    heard.at = time.monotonic()
    consumer._place()
    assert consumer.member.stopped == {TP: "it was truncated"}
    assert consumer.placing.sure == {TP: Stopped("it was truncated")}
    assert (consumer.member.unplaced, consumer.member.doubted) == (set(), {})


def test_what_was_seen_before_the_group_gave_the_partition_away_is_forgotten(consumer, heard):
    consumer._place()
    consumer.member.lost(consumer.member.consumer.assignment())
    heard.at = math.inf
    consumer._place()
    assert (consumer.member.stopped, consumer.placing.sure) == ({}, {})


def test_a_reset_waits_as_well(consumer, heard):
    consumer.placing.start = Start(7, accepts="it was truncated")
    consumer._place()
    assert (consumer.member.consumer.running, consumer.placing.sure) == (set(), {})
    heard.at = math.inf
    consumer._place()
    assert (consumer.member.consumer.sought[-1], len(consumer.member.consumer.running)) == (7, 1)


def test_what_cannot_be_written_down_now_is_tried_again(consumer, heard):
    consumer.placing.away, heard.at = True, math.inf
    consumer._place()
    assert (consumer.member.stopped, consumer.member.unplaced) == ({}, {TP})
    consumer.placing.away = False
    consumer._place()
    assert consumer.member.stopped.keys() == {TP}


def test_a_start_like_any_other_waits_for_nothing(consumer):
    consumer.placing.start = Start(5)
    consumer._place()
    assert (consumer.member.consumer.sought[-1], consumer.member.unplaced) == (5, set())


def test_a_partition_that_went_to_others_is_not_shown_as_stopped_by_us(consumer, heard):
    heard.at = math.inf
    consumer._place()
    assert shown() == [1]
    consumer.member.lost(consumer.member.consumer.assignment())
    assert shown() == []
