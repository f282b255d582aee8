"""The queries of events, buckets and batches; an order is sent when its batch is: its own row is not written again."""

import uuid
from collections import Counter

import pytest
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from buffer.admin.buckets import why_not_withdraw
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import claim
from buffer.flush.flusher import publish
from buffer.partitioned import EVENTS
from buffer.verify import checks
from config.database.clock import database_now
from config.partitions.spec import shift, start_of
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order

pytestmark = pytest.mark.django_db


@pytest.fixture
def claimed(ingest, records, stream):
    """Two warehouses whose batches are cut, and one that waits."""
    ingest(records(order("A1"), order("A2"), order("B1", "WH-2"), order("C1", "WH-3")))
    urge(location_id__in=["WH-1", "WH-2"])
    return claim(stream)


def statuses() -> dict[str, str]:
    return dict(BufferedEvent.objects.order_by("order_id").values_list("order_id", "status"))


def test_settling_a_batch_writes_none_of_its_orders(claimed, producer):
    with CaptureQueriesContext(connection) as ran:
        publish(claimed.batches, claimed.token, producer)
    assert not [query["sql"] for query in ran if "buffer_bufferedevent" in query["sql"]]
    assert statuses() == {"A1": "sent", "A2": "sent", "B1": "sent", "C1": "pending"}


@pytest.mark.parametrize(
    ("batch", "its_orders"), [("claimed", "claimed"), ("parked", "claimed"), ("sent", "sent"), ("discarded", "sent")]
)
def test_a_claimed_order_is_sent_once_its_batch_no_longer_waits(claimed, batch, its_orders):
    """A discarded batch takes its orders with it before (test_levers), so that none is left to be read as sent."""
    Batch.objects.filter(location_id="WH-1").update(status=batch)
    assert statuses() == {"A1": its_orders, "A2": its_orders, "B1": "claimed", "C1": "pending"}


def test_rows_are_counted_without_a_look_at_their_batches(claimed):
    """What a batch has claimed counts as sent: the guard of a drop has asked about the batches before."""
    assert BufferedEvent.objects.counted() == {("transfer-requests", "sent"): 3, ("transfer-requests", "pending"): 1}


def test_it_is_sent_in_every_kind_of_query(claimed):
    Batch.objects.filter(location_id="WH-1").update(status="sent")
    events = BufferedEvent.objects
    assert set(events.filter(status="sent").values_list("order_id", flat=True)) == {"A1", "A2"}
    assert [event.order_id for event in events.filter(status="claimed")] == ["B1"]
    assert [event.order_id for event in events.exclude(status__in=["sent", "claimed"])] == ["C1"]
    assert dict(events.values_list("status").annotate(number=Count("id")).order_by()) == {
        "sent": 2, "claimed": 1, "pending": 1,
    }  # fmt: skip
    in_order = events.order_by("status", "order_id")
    assert [event.status for event in in_order] == ["claimed", "pending", "sent", "sent"]
    assert {event.order_id: event.status for event in events.select_for_update()} == statuses()
    event = events.get(order_id="B1")
    Batch.objects.update(status="sent")
    event.refresh_from_db()
    assert event.status == "sent"
    assert events.filter(pk=event.pk, status="claimed").update(revision=7) == 0
    assert events.filter(pk=event.pk, status="sent").update(revision=7) == 1


def test_an_order_outlives_its_batch_as_sent_and_verify_names_it_unless_its_month_is_over(claimed, settings):
    assert [check for check in checks(["transfer-requests"]) if not check.ok] == []
    Batch.objects.filter(location_id="WH-1").delete()
    assert Counter(statuses().values()) == {"sent": 2, "claimed": 1, "pending": 1}
    (failed,) = [check for check in checks(["transfer-requests"]) if not check.ok]
    assert failed.name == "transfer-requests: every claimed or sent order has its batch"
    assert [row["order_id"] for row in failed.rows] == ["A1", "A2"]
    settings.BUFFER_RETENTION_MONTHS = 2
    old = EVENTS.value(shift("month", start_of("month", database_now().date()), -3))
    BufferedEvent.objects.filter(order_id__in=["A1", "A2"]).update(partition_key=old)
    assert [check for check in checks(["transfer-requests"]) if not check.ok] == []


def test_what_is_stored_as_it_is_read_looks_at_no_batch():
    for status in ("pending", "discarded"):
        assert "buffer_batch" not in str(BufferedEvent.objects.filter(status=status).only("id").query)
    assert "buffer_batch" in str(BufferedEvent.objects.filter(status="claimed").only("id").query)


def test_an_order_that_was_sent_cannot_be_withdrawn_and_says_when_it_went(claimed, producer):
    assert "was put into a batch" in why_not_withdraw(BufferedEvent.objects.get(order_id="A1"))
    publish(claimed.batches, claimed.token, producer)
    assert "was sent" in why_not_withdraw(BufferedEvent.objects.get(order_id="A1"))


# -- Guards of the queries --------------------------------------------------------------------------
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
