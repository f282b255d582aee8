"""What counts as read: the client's position, with records or without, once everything before it is written."""

from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.positions import Passed
from config.kafka.runtime.log_ends import LogEnds
from config.kafka.runtime.offsets import Offsets
from config.kafka.runtime.writer import Done

TP = ("t", 0)


class Broker:
    """A client at a position, and a log that ends where it says."""

    def __init__(self):
        self.at, self.end = 10, 22
        cluster = SimpleNamespace(topic_id=lambda topic: None)
        self._client = SimpleNamespace(cluster=cluster)

    def assignment(self):
        return {client.TopicPartition(*TP)}

    def position(self, tp):
        return self.at

    def end_offsets(self, tps, timeout_ms):
        return dict.fromkeys(tps, self.end)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def ends(broker):
    found = LogEnds(broker, "g")
    found.started(TP, 3)
    found.records_end[TP] = 10
    return found


def test_a_position_behind_the_last_record_is_passed(ends, broker):
    ends.look(1, ())
    assert ends.to_report(1)[TP].passed is None
    broker.at = 22
    ends.look(1, ())
    assert ends.to_report(0)[TP].passed is None, "batch 1 is not written yet"
    assert ends.to_report(1)[TP].passed == Passed("", 22, 10)


def test_what_was_polled_and_is_in_no_batch_is_not_passed(ends, broker):
    broker.at = 22
    ends.look(1, (), {TP})
    assert ends.to_report(1)[TP].passed is None
    ends.look(2, ())
    assert ends.to_report(2)[TP].passed == Passed("", 22, 10)


def test_a_position_that_was_passed_takes_no_offset_back():
    done = [Done(3, {TP: 120}), Done(0, {TP: 100})]
    consumer = Broker()
    offsets = Offsets(consumer, SimpleNamespace(finished=lambda: done))
    committed = []
    consumer.commit_async = committed.append
    for later in ([Done(0, {TP: 110})], [Done(0, {TP: 130})], []):
        offsets.commit_soon()
        done[:] = later
    assert [found[client.TopicPartition(*TP)].offset for found in committed] == [120, 130]
