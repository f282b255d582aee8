"""What somebody sees who starts the demo for the first time: a dead letter of every flow within half a minute."""

from __future__ import annotations

from itertools import islice

import pytest

from buffer.ingest.handler import Ingest
from buffer.ledger.handler import Track
from buffer.streams import streams
from config.database.clock import database_now
from config.flows import Sample, flows
from config.kafka import RecordBatch, Replayed
from config.management.commands.simulate import Command
from notifications.channels.local import REFUSED
from notifications.orders.models import Order
from throttler.engine.decisions import decode
from throttler.messages import gate

pytestmark = pytest.mark.django_db
SOON = 30  # seconds
OPTIONS = Command().create_parser("manage.py", "simulate").parse_args([])
MOST = int(OPTIONS.rate * SOON)


def samples_of(name: str) -> list:
    return list(islice(next(flow for flow in flows() if flow.name == name).samples(OPTIONS.seed), MOST))


def records_of(name: str) -> list[Replayed]:
    """As they would arrive now."""
    at = int(database_now().timestamp() * 1000)
    found = [sample for sample in samples_of(name) if isinstance(sample, Sample)]
    return [Replayed(one.topic, 0, n, at, one.key.encode(), one.value) for n, one in enumerate(found)]


def test_the_buffer_refuses_a_record():
    stream = streams()["transfer-requests"]
    assert list(Ingest(stream).prepare(RecordBatch(records_of("buffer"), {})).letters)


def test_the_ledger_refuses_a_record():
    records = records_of("ledger")
    prepared = Track().prepare(RecordBatch(records, {one.topic: "t" for one in records}))
    assert prepared.letters


def test_the_throttler_refuses_a_record():
    assert any(decode(one, gate(), "t").letter for one in records_of("throttler"))


def test_a_mail_server_refuses_a_mail():
    for action in samples_of("notifications"):
        action.run()
    paid = Order.objects.exclude(status=Order.Status.PENDING).values_list("user_email", flat=True)
    assert [address for address in paid if address.rpartition("@")[2] in REFUSED]
