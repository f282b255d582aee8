"""Rows and letters through the real writer, with the store in Cassandra: an outage makes no letters."""

import time
from contextlib import closing

import pytest

from config.kafka import RecordBatch
from config.kafka.runtime.writer import Writer
from outbox.models import DeadLetter
from tests.throttler.live.test_storing import store, stowed
from tests.throttler.overflow.conftest import TODAY
from throttler.live.storing import NoPositions, RowHandler
from throttler.overflow.store import LAST_OFFSET, LaneRange

pytestmark = pytest.mark.django_db(transaction=True)


def through(found):
    return closing(Writer(RowHandler(found), NoPositions(), "throttler"))


def offsets(found):
    rows = found.read([LaneRange(3, "acme", "t", 0, LAST_OFFSET, TODAY, 10)])
    return [row.offset for row in rows[3, "acme"]]


def test_rows_wait_for_a_server_that_is_away_and_none_becomes_a_letter(behind, gate):
    behind.count(LaneRange(3, "acme", "t", 0, 9, TODAY, 10))
    gate.shut()
    with through(behind) as writer:
        assert writer.submit(
            RecordBatch([stowed(1, TODAY), stowed(2, letter="no value")], {"notifications-in": "t"}), 1, timeout=10
        )
        while writer.busy and not writer.waiting:
            time.sleep(0.01)
        assert writer.busy
        gate.reopen()
        assert writer.drain(30)
        assert writer.done.get(timeout=1).parked == {}
    assert offsets(behind) == [1]
    assert [letter.offset for letter in DeadLetter.objects.all()] == [2]


def test_a_row_that_the_server_refuses_becomes_a_letter_and_holds_up_nothing(cassandra):
    with through(cassandra) as writer:
        store(writer, stowed(1, TODAY), stowed(2, TODAY, customer="c" * 70_000), stowed(3, TODAY))
    assert offsets(cassandra) == [1, 3]
    assert [(letter.offset, letter.reason) for letter in DeadLetter.objects.all()] == [(2, "database_refused")]
