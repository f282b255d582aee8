"""Guards of the queries of events, buckets and batches."""

import uuid

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import claim
from config.database.clock import database_now
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order

pytestmark = pytest.mark.django_db


def test_discarding_a_batch_leaves_orders_alone_that_it_no_longer_holds(ingest, records, stream):
    ingest(records(order("A1"), order("closed"), order("elsewhere")))
    urge()
    claim(stream)
    batch = Batch.objects.get()
    other = Batch.objects.create(
        batch_id=uuid.uuid4(), stream=stream.name, location_id="WH-1", sequence=2, reason="idle",
        partition_key=batch.partition_key, event_count=1, payload="{}", claimed_at=database_now(),
    )  # fmt: skip
    BufferedEvent.objects.filter(order_id="closed").update(status="discarded")
    BufferedEvent.objects.filter(order_id="elsewhere").update(batch_id=other.pk)
    assert BufferedEvent.objects.discard_claimed(batch, database_now()) == 1
    assert dict(BufferedEvent.objects.values_list("order_id", "status")) == {
        "A1": "discarded", "closed": "discarded", "elsewhere": "claimed",
    }  # fmt: skip


def test_only_held_buckets_are_released_and_only_filled_ones_are_then_due(ingest, records, stream):
    ingest(records(order("A1"), order("A2", "held")))
    Bucket.objects.create(stream=stream.name, location_id="empty")
    Bucket.objects.exclude(location_id="WH-1").hold()
    before, now = Bucket.objects.get(location_id="WH-1").due_at, database_now()
    assert Bucket.objects.all().release(now) == 2
    assert dict(Bucket.objects.values_list("location_id", "due_at")) == {"WH-1": before, "held": now, "empty": None}
    assert not Bucket.objects.held().exists()
    assert [bucket.location_id for bucket in Bucket.objects.due(now)] == ["held"]


def test_a_batch_is_unsent_as_long_as_its_orders_read_as_claimed(ingest, records, stream):
    ingest(records(order()))
    urge()
    claim(stream)
    for status in Batch.Status.values:
        Batch.objects.update(status=status)
        waits = BufferedEvent.objects.get().status == "claimed"
        assert Batch.objects.unsent().exists() is waits, status
