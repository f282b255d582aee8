"""Orders that were sent since the backup: the very version that was sent, while it waits, and no other."""

import uuid

import pytest

from buffer.events.models import BufferedEvent
from buffer.ingest.sent_orders import SentOrders, Version, mark_sent
from config.database.clock import database_now
from tests.conftest import order


@pytest.mark.django_db
def test_only_the_version_that_was_sent_is_marked_and_only_while_it_waits(ingest, records, stream):
    found = records(order("A1"), order("A2"), order("A3"))
    ingest(found)
    BufferedEvent.objects.filter(order_id="A2").update(status="discarded")
    offsets = {"A1": found[0].offset, "A2": found[1].offset, "A3": found[2].offset + 1}
    sent = SentOrders({(name, "WH-1"): Version(uuid.uuid4(), 0, offset) for name, offset in offsets.items()})
    keys = list(BufferedEvent.objects.values_list("partition_key", "order_id", "location_id"))
    assert mark_sent(stream, keys, sent, database_now()) == {"WH-1"}
    statuses = dict(BufferedEvent.objects.values_list("order_id", "status"))
    assert statuses == {"A1": "sent", "A2": "discarded", "A3": "pending"}


def test_what_comes_after_is_known_within_a_partition_only():
    sent = SentOrders({("A1", "WH-1"): Version(uuid.uuid4(), 0, 5)})
    places = [(0, 4), (0, 5), (0, 6), (1, 6)]
    assert [sent.comes_after("A1", "WH-1", *place) for place in places] == [False, False, True, False]
