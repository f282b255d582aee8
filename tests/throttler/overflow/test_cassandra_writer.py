"""Rows and letters through the real writers, with the store in Cassandra: an outage makes no letters."""

import time
from contextlib import closing, contextmanager

import pytest
from django.db import OperationalError

from config.kafka import RecordBatch
from outbox.models import DeadLetter
from tests.throttler.engine.test_row_writer import store, stowed
from tests.throttler.overflow.conftest import TODAY
from throttler.engine.row_writer import RowHandler, writers_of
from throttler.overflow.store import LAST_OFFSET, LaneRange

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def through(found):
    rows, letters = writers_of(RowHandler(found))
    with closing(rows), closing(letters):
        yield rows, letters


def offsets(found):
    rows = found.read([LaneRange(3, "acme", "t", 0, LAST_OFFSET, TODAY, 10)])
    return [row.offset for row in rows[3, "acme"]]


def buried():
    return [(letter.offset, letter.reason) for letter in DeadLetter.objects.order_by("offset")]


def test_rows_wait_for_a_server_that_is_away_and_letters_do_not(behind, gate):
    behind.count(LaneRange(3, "acme", "t", 0, 9, TODAY, 10))
    gate.shut()
    with through(behind) as (rows, letters):
        assert rows.submit(RecordBatch([stowed(1, TODAY)], {"notifications-in": "t"}), 1, timeout=10)
        store(letters, stowed(2, letter="no value"))
        assert buried() == [(2, "empty")]
        while rows.busy and not rows.waiting:
            time.sleep(0.01)
        assert rows.busy
        gate.reopen()
        assert rows.drain(30)
        assert rows.done.get(timeout=1).parked == {}
    assert offsets(behind) == [1]
    assert buried() == [(2, "empty")]


def test_rows_are_stored_while_the_database_is_away_and_letters_wait(cassandra, monkeypatch):
    with through(cassandra) as (rows, letters):
        with monkeypatch.context() as away:
            away.setattr("config.kafka.consumer.writer.transaction.atomic", refuse)
            assert letters.submit(RecordBatch([stowed(2, letter="no value")], {"notifications-in": "t"}), 1, timeout=10)
            store(rows, stowed(1, TODAY), stowed(3, TODAY))
            assert offsets(cassandra) == [1, 3]
            assert letters.busy
        assert letters.drain(30)
    assert buried() == [(2, "empty")]


def refuse():
    raise OperationalError("the database is away")


def test_a_row_that_the_server_refuses_becomes_a_letter_and_holds_up_nothing(cassandra):
    with through(cassandra) as (rows, _letters):
        store(rows, stowed(1, TODAY), stowed(2, TODAY, customer="c" * 70_000), stowed(3, TODAY))
    assert offsets(cassandra) == [1, 3]
    assert buried() == [(2, "database_refused")]
