"""How rows travel into one statement: any text, on a session with any mode, encoded ahead or not."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django_prometheus.db.metrics import execute_total

from buffer.models import Batch, Bucket, InventoryStock
from config.database.clock import database_now
from config.database.dialects import vendors
from config.database.dialects.base import Column
from config.database.dialects.vendors import dialect_for, known_dialect
from config.database.retry import Remedy, remedy_for
from config.database.upsert import Packed, Rewrite, columns_of
from outbox.bookkeeping.counters import ADD
from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup

ODD = ["it's", "back\\slash", '"quoted"', "100 % %s", "x'41'", "\\' OR 1 = 1 -- ", "new\nline", "ünï 🙂", "null"]

pytestmark = pytest.mark.django_db


def stored():
    return set(FlowCounter.objects.values_list("flow", "scope", "slot", "name", "value"))


@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"])
def test_any_text_arrives_as_it_is(mode):
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("SELECT @@sql_mode")
            ((before,),) = cursor.fetchall()
            cursor.execute("SET sql_mode = %s", [f"{before},{mode}".strip(",")])
        elif mode:
            pytest.skip("a mode of MariaDB and MySQL")
        rows = [("flow", text, 0, "odd", number) for number, text in enumerate(ODD)]
        try:
            ADD.run(rows)
            assert stored() == set(rows)
        finally:
            if connection.vendor == "mysql":
                cursor.execute("SET sql_mode = %s", [before])


def test_rows_encoded_ahead_are_the_same_rows():
    dialect_for(connection)
    rows = Packed([("flow", text, 0, "odd", number) for number, text in enumerate(ODD)])
    assert rows.dialect is known_dialect("default")
    rows_before = list(rows)
    rows.clear()  # what is written is what was encoded
    rows.append(rows_before[0])
    ADD.run(rows)
    assert stored() == set(rows_before)


def test_rows_encoded_for_another_database_are_encoded_again():
    rows = Packed([("flow", "a", 0, "b", 1)])
    rows.dialect, rows.parameters = None, ["for another one"]
    ADD.run(rows)
    assert stored() == {("flow", "a", 0, "b", 1)}


def test_statements_with_a_batch_are_counted_in_the_metrics():
    count = execute_total.labels("default", connection.vendor)._value
    before = count.get()
    ADD.run([("flow", "a", 0, "b", 1)])
    assert count.get() > before


def test_every_statement_is_counted_by_one_class_of_cursors():
    count = execute_total.labels("default", connection.vendor)._value
    before = count.get()
    classes = set()
    for _ in range(3):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            classes.add(type(cursor.cursor))
    assert count.get() - before == 3
    assert len(classes) == 1 or connection.vendor == "sqlite"  # there the library makes one for each


def test_the_session_has_its_usual_cursor_afterwards():
    usual = getattr(connection.connection, "cursor_factory", None)
    ADD.run([("flow", "a", 0, "b", 1)])
    assert getattr(connection.connection, "cursor_factory", None) is usual


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall() if "outbox_flowcounter" in statement]


@pytest.fixture
def fresh_session():
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL prepares")
    vendors._binding_cursor.cache_clear()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    connection.connection._prepared.clear()
    yield
    vendors._binding_cursor.cache_clear()


def test_a_batch_is_planned_once_a_session(fresh_session):
    for number in range(3):
        ADD.run([("flow", "", 0, "odd", number)])
    assert len(prepared()) == 1
    assert stored() == {("flow", "", 0, "odd", 3)}
    assert connection.connection.prepare_threshold is None  # what Django runs itself is not prepared
    with CaptureQueriesContext(connection) as queries:
        ADD.run([("flow", "", 0, "odd", 4)])
    assert "outbox_flowcounter" in queries[0]["sql"]


def test_behind_a_pooler_nothing_is_prepared(fresh_session, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    for number in range(3):
        ADD.run([("flow", "", 0, "odd", number)])
    assert not prepared()
    assert stored() == {("flow", "", 0, "odd", 3)}


def test_a_table_that_changed_its_type_is_no_reason_to_bury_records(fresh_session):
    def names() -> list[tuple[str]]:
        with dialect_for(connection).cursor(connection) as cursor:
            cursor.execute("SELECT name FROM outbox_flowcounter WHERE flow = %s", ["flow"])
            return cursor.fetchall()

    ADD.run([("flow", "", 0, "odd", 1)])
    assert names() == [("odd",)]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE outbox_flowcounter ALTER COLUMN name TYPE text")
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        names()
    assert remedy_for(caught.value) is Remedy.WAIT  # and whoever waits opens another session


@pytest.mark.parametrize(
    ("model", "column", "kind"),
    [
        (Bucket, "location_id", "text"),
        (Bucket, "open_count", "int"),
        (Bucket, "sequence", "bigint"),
        (Bucket, "held", "bool"),
        (Bucket, "due_at", "timestamp"),
        (Batch, "batch_id", "uuid"),
        (Batch, "months", "json"),
        (Batch, "payload", "long"),
        (ChannelState, "tokens", "float"),
        (InventoryStock, "location_id", "bigint"),  # a foreign key is what it points at
        (InventoryStock, "item_id", "text"),
        (FailureGroup, "title", "long"),  # more characters than an identifier may have
        (Watermark, "alarm", "long"),
    ],
)
def test_the_field_says_what_a_column_holds(model, column, kind):
    assert columns_of(model, column) == (Column(column, kind),)


def test_a_column_that_the_table_has_not_is_named():
    with pytest.raises(KeyError, match="colour"):
        columns_of(Bucket, "location_id colour")


@pytest.mark.django_db
def test_a_long_text_is_found_and_rewritten_whole():
    """As an identifier MySQL would unpack its first 249 characters only."""
    group = FailureGroup.objects.create(
        fingerprint="f", source="s", step="decode", reason="r", title="t", first_seen=database_now(),
        last_seen=database_now(),
    )  # fmt: skip
    assert Rewrite(FailureGroup, key="fingerprint", changes="title").run([("f", "ü" * 300)]) == 1
    group.refresh_from_db()
    assert group.title == "ü" * 300
