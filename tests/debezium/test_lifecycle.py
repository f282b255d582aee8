"""A connector that is down, comes back, starts from nothing, or sees the table change."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from django.db import connection
from django.db.models import CharField

from config.fields import uuid7
from outbox.models import OutboxMessage
from outbox.workers.change_capture import read_change
from tests.crash.wire import wait_for
from tests.debezium.connector import orphaned, server, slots
from tests.debezium.rows import arrived, insert
from tests.services.connect import ask


def test_what_was_written_while_it_was_down_arrives_when_it_is_back(shared_connector, reader):
    shared_connector.stop()
    try:
        rows = insert(10)
        reader.poll(1)
        assert not reader.records
    finally:
        shared_connector.start()
    arrived(reader, rows)


def test_from_scratch_it_repeats_what_is_pending_and_leaves_out_what_is_not(connector):
    reader = connector.reader()
    waiting = insert(5)
    insert(5, state="sent")
    reader.wait_for(10)
    connector.restart_from_scratch()
    rows = insert(1)
    reader.wait_for(10 + 5 + 1)
    reader.poll(0.5)
    again = [read_change(record.value).id for record in reader.records[10:]]
    reader.close()
    assert sorted(again) == sorted(row.id for row in [*waiting, *rows])


def test_nothing_of_a_deleted_connector_stays(new_connector, transactional_db):
    connector = new_connector()
    connector.start()
    assert bool(slots(connector.name)) is (server() == "postgres")
    connector.delete()
    assert connector.name not in ask(connector.port, "GET", "/connectors")
    assert not slots(connector.name)
    connector.delete()  # a second time, as after a test that failed half-way


@contextmanager
def another_column():
    """A column more, as a migration of tomorrow adds it."""
    field = CharField(max_length=20, default="x", db_default="x")
    field.set_attributes_from_name("colour")
    field.model = OutboxMessage
    with connection.schema_editor() as editor:
        editor.add_field(OutboxMessage, field)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.remove_field(OutboxMessage, field)


def test_a_column_more_or_less_changes_nothing(reader):
    rows = insert(5)
    with another_column():
        rows += insert(5)
    rows += insert(5)
    arrived(reader, rows)


def test_a_quiet_outbox_lets_go_of_the_log_of_other_tables(shared_connector, reader):
    """Without a heartbeat of its own in the log, the slot would keep all of it until the next message."""
    if server() != "postgres":
        pytest.skip("only PostgreSQL keeps its log for a reader")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE busy AS SELECT number FROM generate_series(1, 1000) AS number")
        try:
            cursor.execute("SELECT pg_current_wal_lsn()")
            (written,) = cursor.fetchone()
            question = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"

            def let_go() -> bool:
                cursor.execute(question, [written, shared_connector.name])
                return cursor.fetchone()[0]

            wait_for(let_go, 20, "the slot to move on")
        finally:
            cursor.execute("DROP TABLE busy")
    arrived(reader, [])


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        (f"outboxtest_4194999_{uuid7().hex[:8]}", True),  # beyond any process id
        ("spillway_outbox", False),
        ("outboxtest_x_1", False),
        ("outboxtest", False),
    ],
)
def test_only_what_dead_tests_left_is_swept_away(name, verdict):
    assert orphaned(name) is verdict
