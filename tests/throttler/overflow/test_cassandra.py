"""What only the store in Cassandra has to answer for: a server that is away, a table that is not, rows it refuses."""

import time
from contextlib import closing

import pytest
from django.db import DataError, OperationalError, ProgrammingError

from config.database.retry import Remedy, remedy_for
from tests.throttler.overflow.conftest import DAY, TODAY, lane, offsets, row


def test_a_server_that_is_away_is_waited_for_and_found_when_it_is_there(behind, gate):
    gate.shut()
    with pytest.raises(OperationalError, match="CASSANDRA_URL") as raised:
        behind.store([row(1)])
    assert remedy_for(raised.value) is Remedy.WAIT
    assert "\n" not in str(raised.value)
    gate.reopen()
    behind.store([row(1)])
    assert offsets(behind.read([lane()])) == [1]


def test_a_server_that_goes_is_waited_for_and_found_again(behind, gate):
    behind.store([row(1)])
    gate.shut()
    for request in (lambda: behind.store([row(2)]), lambda: behind.read([lane()]), lambda: behind.count(lane())):
        with pytest.raises(OperationalError, match="CASSANDRA_URL") as raised:
            request()
        assert remedy_for(raised.value) is Remedy.WAIT
    gate.reopen()
    until_answered(lambda: behind.store([row(2)]))
    assert offsets(behind.read([lane()])) == [1, 2]


def test_after_a_long_outage_too_the_server_is_looked_for_every_second(place):
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    cluster = module.cluster_of(place)
    pauses = cluster.reconnection_policy.new_schedule()
    cluster.shutdown()
    assert {next(pauses) for _ in range(1000)} == {1.0}


def until_answered(request):
    """The driver looks for the server once a second; by its own rule that grows to ten minutes."""
    for _ in range(200):
        try:
            return request()
        except OperationalError:
            time.sleep(0.05)
    return request()


def test_a_store_without_its_table_is_waited_for_and_names_the_command(place):
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    with closing(module.CassandraStore(place, days=3)) as store:
        with pytest.raises(ProgrammingError, match="create_overflow_store") as raised:
            store.store([row(1)])
    assert remedy_for(raised.value) is Remedy.WAIT


def test_a_table_that_is_dropped_under_a_prepared_statement_is_waited_for(cassandra):
    cassandra.store([row(1)])
    cassandra.session.execute(f"DROP TABLE {cassandra.schema.table}")
    with pytest.raises(ProgrammingError, match="create_overflow_store"):
        cassandra.store([row(2)])


def test_a_row_that_the_server_refuses_is_a_matter_of_its_data(cassandra):
    with pytest.raises(DataError) as raised:
        cassandra.store([row(1, topic_id="t" * 70_000)])
    assert remedy_for(raised.value) is Remedy.DATA


def test_a_row_that_the_driver_refuses_is_one_too(cassandra):
    with pytest.raises(DataError):
        cassandra.store([row(1, "c" * 70_000)])


def test_a_store_that_is_there_is_made_again_without_harm(cassandra):
    cassandra.store([row(1)])
    cassandra.create()
    assert offsets(cassandra.read([lane()])) == [1]


def test_rows_live_as_long_as_the_settings_say_whatever_the_table_says(cassandra):
    cassandra.session.execute(f"ALTER TABLE {cassandra.schema.table} WITH default_time_to_live = 60")
    cassandra.store([row(1)])
    [(left,)] = cassandra.session.execute(f"SELECT TTL(payload) FROM {cassandra.schema.table}")
    assert 3 * 86_400 - 60 < left <= 3 * 86_400


def test_rows_of_one_lane_that_are_larger_than_a_request_may_be_are_stored_and_read(cassandra):
    """A node takes 16 MiB; the worker hands over up to KAFKA_MAX_BATCH_BYTES."""
    cassandra.store([row(offset, payload=b"x" * 300_000) for offset in range(60)])
    found = cassandra.read([lane()])[0, "c1"]
    assert [len(one.payload) for one in found] == [300_000] * 60


def test_rows_of_days_beyond_tomorrow_are_read(cassandra):
    """As a database stored them whose clock was ahead, or as a host reads them whose clock is behind."""
    ahead = TODAY + 5 * DAY
    cassandra.store([row(1), row(2, day=ahead)])
    found = lane(newest=ahead)
    assert offsets(cassandra.read([found])) == [1, 2]
    assert cassandra.count(found) == 2
