"""What goes with a month of the buffer, and what stays."""

import uuid

import pytest

from buffer.events.models import NO_BATCH, Batch, BufferedEvent
from buffer.partitioned import EVENTS, MINUTES_KEPT, sweep_batches, sweep_minutes
from config.database.clock import database_now
from config.partitions import ensure_partitions, rotate
from config.partitions.spec import shift, start_of
from outbox.bookkeeping.counters import dropped_rows, minute_of
from outbox.bookkeeping.models import FlowMinute

pytestmark = pytest.mark.django_db


def test_batches_of_months_that_are_gone_are_swept_once_they_are_sent_or_discarded():
    now = database_now()
    oldest = EVENTS.oldest(now.date())
    kept, gone = EVENTS.value(oldest), EVENTS.value(shift("month", oldest, -1))
    Batch.objects.bulk_create(
        Batch(
            batch_id=uuid.uuid4(), stream="s", location_id="WH", sequence=number, status=status, reason="idle",
            partition_key=month, event_count=1, payload="{}", claimed_at=now,
        )
        for number, (month, status) in enumerate((m, s) for m in (gone, kept) for s in Batch.Status.values)
    )  # fmt: skip
    assert sweep_batches(now) == 2
    left = Batch.objects.values_list("partition_key", "status")
    assert sorted(left) == sorted([(gone, "claimed"), (gone, "parked"), *((kept, s) for s in Batch.Status.values)])


def test_minutes_are_kept_for_a_day_and_only_those_of_the_named_streams_go():
    now = database_now()
    oldest = minute_of(now) - MINUTES_KEPT
    rows = [("s", oldest - 1), ("s", oldest), ("other", oldest - 1)]
    FlowMinute.objects.bulk_create(FlowMinute(flow=flow, name="read", minute=minute, value=1) for flow, minute in rows)
    assert sweep_minutes(["s"], now) == 1
    assert sorted(FlowMinute.objects.values_list("flow", "minute")) == sorted(rows[1:])


# -- A month is kept as long as an order of it waits ------------------------------------------------
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
