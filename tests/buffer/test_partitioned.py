"""A month of the buffer is kept as long as an order of it waits."""

import uuid

import pytest

from buffer.events.models import NO_BATCH, Batch, BufferedEvent
from buffer.partitioned import EVENTS
from config.database.clock import database_now
from config.partitions import ensure_partitions, rotate
from config.partitions.spec import shift, start_of
from outbox.bookkeeping.counters import dropped_rows


@pytest.fixture
def short_retention(settings):
    """Three months, on a table made for more; the months that a test drops are made again."""
    usual, settings.BUFFER_RETENTION_MONTHS = settings.BUFFER_RETENTION_MONTHS, 3
    yield
    settings.BUFFER_RETENTION_MONTHS = usual
    ensure_partitions(EVENTS)


@pytest.mark.django_db(transaction=True)
def test_a_month_goes_and_is_counted_once_none_of_its_orders_waits_for_a_batch_or_in_one(short_retention):
    now = database_now()
    month = EVENTS.value(shift("month", start_of("month", now.date()), -10))
    batch = Batch.objects.create(
        batch_id=uuid.uuid4(), stream="s", location_id="WH", sequence=1, status="claimed", reason="idle",
        partition_key=month, event_count=2, payload="{}", claimed_at=now,
    )  # fmt: skip
    for number, status in enumerate(["sent", "claimed", "claimed", "discarded", "pending"]):
        BufferedEvent.objects.create(
            partition_key=month, stream="s", location_id="WH", order_id=str(number), status=status,
            batch_id=batch.pk if status == "claimed" else NO_BATCH, payload="{}", payload_hash="",
            source_partition=0, source_offset=number, source_timestamp=0, created_at=now, updated_at=now,
        )  # fmt: skip
    # An order's row is not written when its batch is sent, and yet no longer holds the month.
    for batch_is, number in {"claimed": 3, "parked": 3, "sent": 1}.items():
        Batch.objects.update(status=batch_is)
        (plan,) = rotate(specs=[EVENTS])
        assert f"{number} unfinished" in {step.reason for step in plan.only("keep")}
        assert BufferedEvent.objects.count() == 5
    BufferedEvent.objects.pending().update(status="discarded")
    (plan,) = rotate(specs=[EVENTS])
    assert plan.failures == []
    assert plan.only("drop")
    assert BufferedEvent.objects.count() == 0
    assert dropped_rows("s", EVENTS) == 5
