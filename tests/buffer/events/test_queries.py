"""Guards of the sentences about events, buckets and batches."""

import uuid

import pytest

from buffer.events.models import Batch, BufferedEvent
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
