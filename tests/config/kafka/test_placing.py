"""Where partitions start whose truth is the database, and what is tried again when it is away."""

import threading
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from config.kafka import client
from config.kafka.consumer.database import WatermarkPlacing
from config.kafka.positions import Mark, Start, Stopped

TP = ("orders", 0)


class Scripted:
    """Positions of one partition that was read to 50; it can be away for the storing of alarms."""

    def __init__(self):
        self.away, self.alarms, self.marks = False, {}, {}

    def load(self, group, topics):
        return {TP: Mark("", 50)}

    def stop(self, group, alarms, now):
        if self.away:
            raise OperationalError("away")
        self.alarms.update(alarms)

    def reset(self, group, marks, now):
        self.marks.update(marks)


class Broker:
    """A client that knows a log from 0 to `end`, and whose committed offset may be pending."""

    def __init__(self, end=100):
        self.end, self.pending = end, False

    def beginning_offsets(self, tps, timeout_ms):
        return dict.fromkeys(tps, 0)

    def end_offsets(self, tps, timeout_ms):
        return dict.fromkeys(tps, self.end)


@pytest.fixture
def positions():
    return Scripted()


@pytest.fixture
def broker(monkeypatch):
    found = Broker()

    def committed_of(consumer, tps, timeout_ms):
        if consumer.pending:
            raise client.KafkaTimeoutError("pending")
        return dict.fromkeys(tps, 50)

    monkeypatch.setattr("config.kafka.internals.committed_of", committed_of)
    monkeypatch.setattr("config.kafka.internals.topic_id_of", lambda _consumer, _topic: "")
    return found


@pytest.fixture
def placing(positions, monkeypatch):
    monkeypatch.setattr("config.kafka.consumer.database.LIMIT", 0.1)
    handler = SimpleNamespace(name="orders", regain=lambda _ids, _gaps: None)
    backend = SimpleNamespace(drain=lambda patience: True)
    return WatermarkPlacing(handler, positions, "g", [TP[0]], backend, threading.Event())


def test_reading_starts_at_the_watermark(placing, broker, transactional_db):
    assert placing.place(broker, {TP}) == {TP: Start(50)}


def test_while_the_writers_are_at_work_nothing_is_placed(placing, broker, transactional_db):
    placing.backend.drain = lambda patience: False
    assert placing.place(broker, {TP}) == {}


def test_a_pending_offset_is_asked_for_again(placing, broker, transactional_db):
    broker.pending = True
    assert placing.place(broker, {TP}) == {}
    broker.pending = False
    assert placing.place(broker, {TP}) == {TP: Start(50)}


def test_an_alarm_that_cannot_be_stored_is_stored_later(placing, broker, positions, transactional_db):
    broker.end, positions.away = 10, True
    starts = placing.place(broker, {TP})
    assert isinstance(starts[TP], Stopped)
    assert not placing.confirmed(starts)
    positions.away = False
    assert placing.confirmed(starts)
    assert "the log ends at 10" in positions.alarms[TP]


def test_after_a_restore_the_handler_is_told_how_far_the_gap_reaches(placing, broker, monkeypatch, transactional_db):
    told = []
    placing.handler.regain = lambda *given: told.append(given)
    monkeypatch.setattr("config.kafka.internals.committed_of", lambda *_asked, timeout_ms: {TP: 80})
    assert placing.place(broker, {TP}) == {TP: Start(50)}
    assert told == [({"orders": ""}, {TP: 80})]


def test_a_topic_that_was_created_again_shows_in_a_partition_that_was_always_empty(
    placing, broker, positions, monkeypatch, transactional_db
):
    monkeypatch.setattr("config.kafka.internals.topic_id_of", lambda _consumer, _topic: "new")
    monkeypatch.setattr("config.kafka.internals.committed_of", lambda *_asked, timeout_ms: {})
    positions.load = lambda group, topics: {TP: Mark("old", 50), ("orders", 1): Mark("", 0)}
    starts = placing.place(broker, {("orders", 1)})
    assert "created again" in starts["orders", 1].alarm


def test_nothing_is_stopped_or_reset_before_the_group_has_confirmed_it(placing, broker, positions, transactional_db):
    broker.end = 10
    placing.place(broker, {TP})
    placing.accept_reset = True
    starts = placing.place(broker, {TP})
    assert (positions.alarms, positions.marks) == ({}, {})
    assert (starts[TP].offset, "the log ends at 10" in starts[TP].accepts) == (0, True)
    assert placing.confirmed(starts)
    assert positions.marks == {TP: Mark("", 0)}
