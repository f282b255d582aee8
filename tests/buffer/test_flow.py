"""The aggregator's letters: a refused batch can be freed or discarded as long as it is parked, and not after."""

import pytest

from buffer.events.models import Batch, BufferedEvent
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.kafka import Refused
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order
from tests.row_locks import locks_asked_for

pytestmark = pytest.mark.django_db
ME = Operator("test")


@pytest.mark.parametrize("status", ["claimed", "sent", "discarded"])
def test_a_batch_that_is_no_longer_parked_is_neither_freed_nor_discarded(ingest, records, stream, producer, status):
    ingest(records(order()))
    urge()
    producer.outcomes = [Refused("too large")]
    Flusher([stream], producer).tick()
    Batch.objects.parked().update(status=status)
    before, letter = Batch.objects.values().get(), DeadLetter.objects.get()
    [(_, why)] = pull("requeue", [letter.pk], ME, "x").refused
    assert why == "the batch is no longer parked"
    with locks_asked_for() as locks:
        [(_, why)] = pull("discard", [letter.pk], ME, "x").refused
    assert why == "the batch is no longer parked"
    assert (Batch.objects.values().get(), DeadLetter.objects.get().status) == (before, "open")
    assert BufferedEvent.objects.filter(status__stored="claimed").exists()
    assert locks == ["outbox_deadletter", "buffer_batch"]
