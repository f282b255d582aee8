"""The project's own partitioned tables, as its migrations made them."""

import uuid

import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.db import connection
from django.utils.module_loading import import_string

from buffer.events.models import NO_BATCH, Batch, BufferedEvent
from buffer.partitioned import EVENTS
from config.database.clock import database_now
from config.partitions import ensure_partitions, plan_for, rotate
from config.partitions.checks import check_models, check_tables
from config.partitions.periods import shift, start_of
from config.partitions.rotation import driver_for
from outbox.bookkeeping.dropped_rows import dropped_rows

SPECS = list(project.PARTITIONS)


@pytest.mark.django_db
@pytest.mark.parametrize("path", SPECS)
def test_migrations_partition_the_table_and_leave_nothing_to_do(path):
    spec = import_string(path)
    assert driver_for(spec, "default").state() == "partitioned"
    assert {step.action for step in plan_for(spec).steps} == {"keep"}
    table, column = spec.resolve()._meta.db_table, driver_for(spec, "default").column
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table).values()
    keys = [one["columns"] for one in found if one["unique"] and connection.vendor != "sqlite"]
    assert all(column in columns for columns in keys)


@pytest.mark.django_db
def test_the_models_pass_the_checks(settings):
    settings.PARTITIONS = SPECS
    assert check_models(None) == []
    assert check_tables(None, databases=["default"]) == []


@pytest.fixture
def short_retention(settings):
    """Three months, on a table made for more; the months that a test drops are made again."""
    usual, settings.BUFFER_RETENTION_MONTHS = settings.BUFFER_RETENTION_MONTHS, 3
    yield
    settings.BUFFER_RETENTION_MONTHS = usual
    ensure_partitions(EVENTS)


@pytest.mark.django_db(transaction=True)
def test_a_month_of_the_buffer_goes_and_is_counted_once_no_batch_of_its_orders_waits(short_retention):
    now = database_now()
    month = EVENTS.value(shift("month", start_of("month", now.date()), -10))
    batch = Batch.objects.create(
        batch_id=uuid.uuid4(), stream="s", location_id="WH", sequence=1, status="claimed", reason="idle",
        partition_key=month, event_count=2, payload="{}", claimed_at=now,
    )  # fmt: skip
    for number, status in enumerate(["sent", "claimed", "claimed", "discarded"]):
        BufferedEvent.objects.create(
            partition_key=month, stream="s", location_id="WH", order_id=str(number), status=status,
            batch_id=batch.pk if status == "claimed" else NO_BATCH, payload="{}", payload_hash="",
            source_partition=0, source_offset=number, source_timestamp=0, created_at=now, updated_at=now,
        )  # fmt: skip
    for waits in ("claimed", "parked"):
        Batch.objects.update(status=waits)
        (plan,) = rotate(specs=[EVENTS])
        assert "2 unfinished" in {step.reason for step in plan.only("keep")}
        assert BufferedEvent.objects.count() == 4
    Batch.objects.update(status="sent")  # its orders' rows are not written, and yet no longer hold the month
    (plan,) = rotate(specs=[EVENTS])
    assert plan.failures == []
    assert plan.only("drop")
    assert BufferedEvent.objects.count() == 0
    assert dropped_rows("s", EVENTS) == 4


@pytest.mark.django_db
def test_operations_leave_no_drift():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
