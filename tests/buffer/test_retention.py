"""What goes with a month of the buffer, and what stays."""

import uuid

import pytest

from buffer.events.models import Batch
from buffer.partitioned import EVENTS, MINUTES_KEPT, sweep_batches, sweep_minutes
from config.database.clock import database_now
from config.partitions.spec import shift
from outbox.bookkeeping.counters import minute_of
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
