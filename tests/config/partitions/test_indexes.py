"""Indexes for databases without partial ones, and how operations look in a migration."""

from django.db import connection
from django.db.migrations.writer import MigrationWriter

from config.partitions.operations import HashPartitionTable, IndexByFlag, IndexWithoutPartial, PartitionTable
from tests.config.partitions.conftest import constraints, state_of
from tests.config.partitions.models import Monthly


def test_an_index_with_other_columns_where_the_condition_is_ignored(schema):
    schema.create("Monthly")
    state = state_of("Monthly")
    operation = IndexWithoutPartial("Monthly", ["status", "name", "id"], "test_monthly_open")
    apply(operation, state)
    kept = connection.features.supports_partial_indexes
    expected = ["name", "id"] if kept else ["status", "name", "id"]
    assert constraints("test_monthly")["test_monthly_open"]["columns"] == expected
    take_back(operation, state)
    assert constraints("test_monthly")["test_monthly_open"]["columns"] == ["name", "id"]


def test_an_index_by_a_flag_where_the_condition_is_ignored(schema):
    schema.create("Monthly")
    state = state_of("Monthly")
    operation = IndexByFlag("Monthly", "test_monthly_open", flag="is_pending")
    Monthly.objects.create(month=202611, name="before", status="pending")
    apply(operation, state)
    kept = connection.features.supports_partial_indexes
    assert constraints("test_monthly")["test_monthly_open"]["columns"] == [
        *([] if kept else ["is_pending"]), "name", "id"
    ]  # fmt: skip
    if not kept:
        Monthly.objects.create(month=202611, name="after", status="pending")
        Monthly.objects.create(month=202611, name="sent")
        assert flags_of("test_monthly") == {"before": 1, "after": 1, "sent": 0}
        Monthly.objects.filter(name="after").update(status="sent")
        assert flags_of("test_monthly")["after"] == 0
    take_back(operation, state)
    assert constraints("test_monthly")["test_monthly_open"]["columns"] == ["name", "id"]
    assert Monthly.objects.filter(name="before").exists()


def apply(operation, state):
    with connection.schema_editor() as editor:
        operation.database_forwards("config", editor, state, state)


def take_back(operation, state):
    with connection.schema_editor() as editor:
        operation.database_backwards("config", editor, state, state)


def flags_of(table: str) -> dict[str, int | None]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT name, is_pending FROM {table}")
        return dict(cursor.fetchall())


def test_operations_can_be_written_to_a_migration():
    for operation in [
        PartitionTable("buffer.partitioned.EVENTS"),
        HashPartitionTable("Tracking", "reference", 16, key=["kind", "reference"]),
        IndexWithoutPartial("Event", ["status", "id"], "event_open_all"),
        IndexByFlag("Event", "event_open", "is_open"),
    ]:
        text, imports = MigrationWriter.serialize(operation)
        name, arguments, named = operation.deconstruct()
        assert text.startswith(f"config.partitions.operations.{name}(")
        assert imports == {"import config.partitions.operations"}
        assert type(operation)(*arguments, **named).describe() == operation.describe()
