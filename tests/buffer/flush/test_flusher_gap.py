"""A restored database: the broker is asked until the gap is closed, and again when the connection is a new one."""

from types import SimpleNamespace

import pytest

from buffer.flush import flusher
from buffer.flush.claim import Round
from buffer.flush.flusher import Flusher, Gap
from config.kafka.client import KafkaError


@pytest.fixture
def world(stream, monkeypatch):
    """Whether the database is behind (or the broker away), how often that was asked, and what time it is."""
    found = SimpleNamespace(behind=True, asked=0, now=0.0, connection=SimpleNamespace(connection=object()))

    def behind(*_):
        found.asked += 1
        if isinstance(found.behind, Exception):
            raise found.behind
        return found.behind

    monkeypatch.setattr(flusher.Watermarks, "behind", behind)
    monkeypatch.setattr(flusher, "connection", found.connection)
    monkeypatch.setattr(flusher, "time", SimpleNamespace(monotonic=lambda: found.now, perf_counter=lambda: 0.0))
    return found


def test_an_open_gap_is_looked_at_once_a_second_and_a_closed_one_no_more(stream, world):
    found = Gap([stream])
    assert [found.is_open() for _ in range(5)] == [True] * 5
    assert world.asked == 1
    world.now, world.behind = flusher.INTERVAL, False
    assert [found.is_open() for _ in range(5)] == [False] * 5
    world.now *= 2
    assert (found.is_open(), world.asked) == (False, 2)


def test_a_new_connection_may_lead_to_another_database(stream, world):
    world.behind = False
    found = Gap([stream])
    assert not found.is_open()
    world.behind, world.now, world.connection.connection = True, flusher.INTERVAL, None
    assert found.is_open()


def test_a_flusher_asks_before_its_first_statement_makes_the_new_connection(stream, world, producer, monkeypatch):
    def connect(*_):
        world.connection.connection = object()
        return None, []

    monkeypatch.setattr(flusher, "lease_unsent", connect)
    monkeypatch.setattr(flusher, "claim", lambda *_: Round(None))
    worker, waited = Flusher([stream], producer, must_wait=Gap([stream]).is_open), []
    for world.now, world.behind in ((0.0, False), (flusher.INTERVAL, True)):
        world.connection.connection = None
        worker.tick()
        waited.append(worker.waiting)
    assert waited == [False, True]


def test_a_broker_that_is_away_closes_no_gap(stream, world):
    world.behind = KafkaError("away")
    assert Gap([stream]).is_open()
