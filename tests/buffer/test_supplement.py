"""A supplement: its own place in the sequence of its warehouse, and an id that a second try finds again."""

from dataclasses import replace

import pytest
from django.db import transaction

from buffer.events.levers import withdraw
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import supplement as making
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.database.retry import Stale
from config.payload import digest
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order
from tests.row_locks import locks_asked_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def late(ingest, records, stream, producer):
    """The letter of a change that came after its order was sent."""
    ingest(records(order("A1")))
    urge()
    Flusher([stream], producer).tick()
    ingest(records(order("A1", items={"S1": 5})))
    return DeadLetter.objects.get()


def supplement(late: DeadLetter) -> Batch:
    with locks_asked_for() as locks:
        assert pull("requeue", [late.pk], Operator("test"), "x").acted == 1
    assert locks == ["outbox_deadletter", "buffer_bufferedevent"]
    return Batch.objects.get(reason="supplement")


def test_a_supplement_takes_a_number_that_no_later_batch_gets(late, ingest, records, stream, producer):
    assert supplement(late).sequence == Bucket.objects.get().sequence == 2
    ingest(records(order("A2")))
    urge()
    Flusher([stream], producer).tick()
    assert list(Batch.objects.order_by("sequence").values_list("sequence", "reason")) == [
        (1, "manual"), (2, "supplement"), (3, "manual"),
    ]  # fmt: skip


@pytest.mark.parametrize(("status", "leads_to"), [("discarded", "late"), ("sent", "first")])
def test_the_trace_of_an_order_leads_to_the_batch_that_carries_it(ingest, records, stream, producer, status, leads_to):
    """An order that is open again is carried by a batch of its late version; one that was sent stays with its batch."""
    traces = {"first": f"00-{'1' * 32}-{'2' * 16}-01", "late": f"00-{'3' * 32}-{'4' * 16}-01"}
    first, late = records(order("A1"), order("A1", items={"S1": 5}))
    ingest([replace(first, headers=[("traceparent", traces["first"].encode())])])
    if status == "sent":
        urge()
        Flusher([stream], producer).tick()
    else:
        withdraw([BufferedEvent.objects.get().pk], Operator("test"), "not wanted")
    ingest([replace(late, headers=[("traceparent", traces["late"].encode())])])
    assert pull("requeue", [DeadLetter.objects.get().pk], Operator("test"), "x").acted == 1
    event = BufferedEvent.objects.get()
    assert (event.payload, event.traceparent) == (order("A1", items={"S1": 5}).decode(), traces[leads_to])


def test_a_supplement_that_is_made_again_has_the_same_id(late):
    """After a restore, say: consumers recognise it by its id."""
    with transaction.atomic():
        first = supplement(late).pk
        transaction.set_rollback(True)
    assert supplement(late).pk == first


@pytest.mark.parametrize(
    ("withdrawn", "meanwhile"),
    [
        (False, {"status": "discarded"}),
        (False, {"revision": 1}),
        (True, {"status": "pending"}),
        (True, {"revision": 1}),
    ],
)
def test_an_order_that_changes_although_it_is_locked_is_refused(
    late, ingest, records, stream, monkeypatch, withdrawn, meanwhile
):
    if withdrawn:
        ingest(records(order("A2")))
        withdraw([BufferedEvent.objects.get(order_id="A2").pk], Operator("test"), "not wanted")
        ingest(records(order("A2", items={"S1": 5})))
        late = DeadLetter.objects.get(business_key="A2")

    def changed(payload):
        BufferedEvent.objects.filter(order_id=late.business_key).update(**meanwhile)
        return digest(payload)

    monkeypatch.setattr(making, "digest", changed)
    with pytest.raises(Stale, match="1 of 1 locked orders have changed"):
        pull("requeue", [late.pk], Operator("test"), "x")
    assert DeadLetter.objects.get(pk=late.pk).status == "open"
    assert not Batch.objects.filter(reason="supplement").exists()
