"""What counts as read: the client's position, with records or without, once everything before it is written."""

from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.consumer.database import Offsets
from config.kafka.consumer.loop import LogEnds
from config.kafka.consumer.writer import Done
from config.kafka.positions import Passed
from config.telemetry import metrics
from tests.exported import exported

TP = ("t", 0)


class Broker:
    """A client at a position, and a log that ends where it says."""

    def __init__(self):
        self.at, self.end = 10, 22
        cluster = SimpleNamespace(topic_id=lambda topic: None)
        self._client = SimpleNamespace(cluster=cluster)

    def assignment(self):
        return {client.TopicPartition(*TP)}

    def paused(self):
        return set()

    def position(self, tp):
        return self.at

    def end_offsets(self, tps, timeout_ms):
        return dict.fromkeys(tps, self.end)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def ends(broker):
    ends = LogEnds(broker, "g")
    ends.started(TP, 3)
    ends.submitted({TP: 10})
    return ends


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


def test_an_offset_of_a_partition_that_was_taken_away_is_not_committed():
    consumer, committed = Broker(), []
    consumer.commit_async = committed.append
    offsets = Offsets(consumer, SimpleNamespace(finished=lambda: [Done(3, {TP: 120, (TP[0], TP[1] + 1): 7})]))
    assert offsets.commit_soon()
    assert [found.keys() for found in committed] == [{client.TopicPartition(*TP)}]


def test_an_offset_of_a_topic_that_is_no_more_is_not_committed_to_the_next_one(monkeypatch):
    monkeypatch.setattr("config.kafka.internals.topic_id_of", lambda _consumer, _topic: "new")
    consumer, committed = Broker(), []
    consumer.commit_async = committed.append
    done = [Done(3, {TP: 120}, topic_ids={TP[0]: "old"})]
    offsets = Offsets(consumer, SimpleNamespace(finished=lambda: done))
    assert not offsets.commit_soon()
    done[:] = [Done(0, {TP: 5}, topic_ids={TP[0]: "new"})]
    assert offsets.commit_soon()
    assert [found[client.TopicPartition(*TP)].offset for found in committed] == [5]


def test_what_was_assigned_and_not_placed_is_not_looked_at(broker):
    """The client's own thread assigns a partition before it calls the listener: between the two the worker saw a
    partition that it had not placed, and died of it."""
    broker.at = 22
    ends = LogEnds(broker, "g")
    ends.look(1, ())
    assert not ends.to_report(1)
    assert not ends.reached_first_end


def shown():
    return list(exported(metrics.CONSUMER_LAG_RECORDS, group="g").values())


def test_the_lag_of_a_partition_is_exported_by_its_owner_alone(ends, broker, monkeypatch):
    ends.look(1, ())
    assert shown() == [12]
    ends.forget({TP})
    assert shown() == []
    ends.started(TP, 3)
    # It is taken away while the broker is asked.
    monkeypatch.setattr(broker, "end_offsets", lambda tps, timeout_ms: ends.forget({TP}) or dict.fromkeys(tps, 22))
    ends.look(2, ())
    assert shown() == []


def test_what_came_back_is_looked_at_once_it_is_placed_again(ends, broker):
    ends.forget({TP})
    ends.submitted({TP: 30})
    broker.at = 22
    ends.look(1, ())
    assert not ends.to_report(1)
    ends.started(TP, 15)
    ends.look(2, ())
    assert ends.to_report(2)[TP].passed == Passed("", 22, 15)
