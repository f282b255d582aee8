"""The claim: what counts as heard, and what must never be committed."""

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import claim as claiming
from buffer.flush.claim import claim
from outbox.bookkeeping.models import Watermark
from tests.buffer.flush.test_flusher import age, hear, urge
from tests.conftest import order

pytestmark = pytest.mark.django_db


def test_a_stopped_partition_is_not_heard_so_its_silence_is_not_idleness(ingest, records, stream):
    ingest(records(order()))
    age(minutes=10)
    hear(seconds=0)
    Watermark.objects.update(alarm="the topic was created again")
    assert claim(stream).batches == []
    Watermark.objects.update(alarm="")
    Bucket.objects.update(due_at=Bucket.objects.get().idle_at)
    assert [batch.orders for batch in claim(stream).batches] == [1]


def test_a_claim_that_gets_fewer_orders_than_it_cut_commits_nothing(ingest, records, stream, monkeypatch):
    """Their rows are locked: whoever changes them nevertheless must not end in a batch that says otherwise."""
    ingest(records(order("A1"), order("A2")))
    urge()
    store = claiming._store_batches

    def withdraw_meanwhile(*given):
        store(*given)
        BufferedEvent.objects.filter(order_id="A1").update(status="discarded")

    monkeypatch.setattr(claiming, "_store_batches", withdraw_meanwhile)
    with pytest.raises(RuntimeError, match="claimed 1 of 2"):
        claim(stream)
    assert not Batch.objects.exists()
    assert set(BufferedEvent.objects.values_list("status", flat=True)) == {"pending"}
