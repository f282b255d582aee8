"""The claim: what counts as heard, and what must never be committed."""

import uuid

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import claim as claiming
from buffer.flush.claim import claim
from config.database.clock import database_now
from outbox.bookkeeping.models import Watermark
from tests.buffer.flush.test_flusher import age, hear, urge
from tests.conftest import TOPIC_ID, order

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


def test_a_round_takes_no_more_orders_than_it_may_and_leaves_the_rest_due(ingest, records, stream, monkeypatch):
    monkeypatch.setattr(claiming, "EVENTS_A_ROUND", 3)
    ingest(records(*[order(f"A{n}", f"WH-{n % 3}") for n in range(6)]))
    urge()
    assert [len(claim(stream).batches) for _ in range(4)] == [1, 1, 1, 0]


def test_a_bucket_whose_orders_are_all_being_changed_is_looked_at_again_later(
    ingest, records, stream, monkeypatch, caplog, django_capture_on_commit_callbacks
):
    caplog.set_level("INFO")
    ingest(records(order()))
    urge()
    with monkeypatch.context() as patched:
        patched.setattr(claiming, "_open_events", lambda *_: {})  # an ingester has locked them
        before = database_now()
        with django_capture_on_commit_callbacks(execute=True):
            assert claim(stream).batches == []
    bucket = Bucket.objects.get()
    assert (bucket.open_count, bucket.urged) == (1, "leftover")
    assert bucket.due_at >= before + claiming.RETRY_EMPTY
    (line,) = [line for line in caplog.records if "buckets_recounted" in str(line.msg)]
    assert line.levelname == "INFO"  # two workers met: that is no warning


def test_a_batch_names_the_topic_even_if_a_partition_was_always_empty(ingest, records, stream):
    ingest(records(order()))
    hear(seconds=0)
    empty = Watermark.objects.get()
    empty.pk, empty.partition, empty.topic_id = None, 1, TOPIC_ID
    empty.save()
    urge()
    assert [batch.headers["topic_id"] for batch in claim(stream).batches] == [TOPIC_ID]


def test_of_a_bucket_that_is_larger_than_a_round_only_the_oldest_orders_are_read(ingest, records, stream, monkeypatch):
    monkeypatch.setattr(claiming, "EVENTS_A_ROUND", 20)
    monkeypatch.setattr(stream, "max_batch", 10)
    ingest(records(*[order(f"A{n}") for n in range(45)]))
    cut = [(claim(stream), Batch.objects.count())[1] for _ in range(4)]
    assert cut == [2, 4, 5, 5]


@pytest.mark.parametrize(("orders_each", "looked_at"), [(2, 2), (1, 3)])
def test_a_few_full_buckets_fill_a_round_and_leave_the_others_to_other_flushers(
    ingest, records, stream, monkeypatch, orders_each, looked_at
):
    monkeypatch.setattr(claiming, "EVENTS_A_ROUND", 8)
    monkeypatch.setattr(claiming, "FULL_BUCKETS_A_ROUND", 2)
    ingest(records(*[order(f"A{n}", f"WH-{n % 3}") for n in range(3 * orders_each)]))
    urge()
    assert claim(stream).looked_at == looked_at


def test_a_batch_of_another_stream_holds_no_batch_of_this_one_back(ingest, records, stream):
    ingest(records(order()))
    urge()
    Batch.objects.create(
        batch_id=uuid.uuid4(), stream="another", location_id="WH-1", sequence=1, reason="idle", partition_key=202611,
        event_count=1, payload="{}", claimed_at=database_now(),
    )  # fmt: skip
    assert len(claim(stream).batches) == 1
