"""A flusher that lives takes up at once what a lost session left under its token, and not when the lease is over."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from buffer.events.models import Batch
from buffer.flush.claim import claim
from buffer.flush.flusher import Flusher
from config.kafka import Failed
from tests.buffer.flush.test_flusher import urge
from tests.buffer.flush.test_publish import sent
from tests.conftest import MemoryProducer, order
from tests.crash.wire import wait_for
from tests.lost_sessions import lost_answer

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 30
both = pytest.mark.parametrize("committed", [True, False])


@both
def test_a_session_that_ends_when_batches_are_cut_holds_nothing_up(ingest, records, stream, committed):
    producer = MemoryProducer()
    flusher = Flusher([stream], producer)
    ingest(records(order("A1")))
    urge()
    with lost_answer(committed=committed), pytest.raises(OperationalError):
        claim(stream, flusher.token)
    wait_for(lambda: flusher.tick() and sent() == (1, 1), PATIENCE, "the batch")
    assert len(producer.sent) == 1


@both
def test_a_session_that_ends_when_batches_are_leased_holds_nothing_up(ingest, records, stream, committed):
    producer = MemoryProducer()
    flusher = Flusher([stream], producer)
    ingest(records(order("A1")))
    urge()
    producer.outcomes = [Failed("the broker is away")]
    flusher.tick()
    Batch.objects.update(lease_until=None)
    with lost_answer(committed=committed), pytest.raises(OperationalError):
        flusher.tick()
    wait_for(lambda: flusher.tick() and sent() == (1, 1), PATIENCE, "the batch")


@both
def test_a_session_that_ends_when_batches_are_settled_sends_nothing_twice(ingest, records, stream, committed):
    class Cutting(MemoryProducer):
        def send_all(self, messages):
            cut.__enter__()
            return super().send_all(messages)

    producer, cut = Cutting(), lost_answer(committed=committed)
    flusher = Flusher([stream], producer)
    ingest(records(order("A1")))
    urge()
    assert flusher.tick() == 1
    cut.__exit__(None, None, None)
    assert (sent(), len(producer.sent), Batch.objects.get().status) == ((1, 1), 1, "sent")
