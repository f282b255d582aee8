"""Walks that docs/paths.md names and no other test takes: the commands, one after the other, in this process."""

from __future__ import annotations

import msgspec
import pytest
from django.core.management import call_command

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.ledger.models import InventoryTracking
from buffer.ledger.topics import sources
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.client import new_producer
from config.processes import worker
from notifications.tasks import apply_webhooks
from outbox.bookkeeping.models import FlowCounter, FlowMinute, Watermark
from outbox.letters.edits import requeue_copy
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import look_after
from outbox.models import OutboxMessage
from tests.config.conftest import broker, make_topic
from tests.conftest import order
from tests.outbox.intake.conftest import envelope
from tests.throttler.worker.conftest import topics

__all__ = ["broker", "make_topic", "topics"]

pytestmark = pytest.mark.django_db(transaction=True)
embedded = pytest.mark.parametrize("broker", ["embedded"], indirect=True)


@pytest.fixture(autouse=True)
def untuned(monkeypatch):
    """A command tunes the interpreter for itself; here others come behind it."""
    monkeypatch.setattr(worker, "tune_interpreter", lambda: None)


def produce(topic: str, *values: bytes) -> None:
    producer = new_producer()
    for value in values:
        producer.send(topic_name(topic), value=value, key=b"k", partition=0)
    producer.flush()
    producer.close()


@embedded
def test_records_become_a_batch(make_topic):
    for name in ("transfer-requests", "transfer-batches"):
        make_topic(name)
    produce("transfer-requests", order("A1"), b"{")
    call_command("ingest_events", once=True)
    Bucket.objects.filled().update(urged="manual", due_at=database_now())
    call_command("flush_buffer", once=True)
    assert BufferedEvent.objects.count() == Batch.objects.sent().count() == 1
    call_command("dead_letters", "list")
    pull("requeue", [DeadLetter.objects.get().pk], Operator("M. Okafor"), "look again")
    call_command("dead_letters", "requeue", "--all", "--reason", "once more")
    assert DeadLetter.objects.count() == 2


def forget(*, positions: bool) -> None:
    """The database as a backup from before the first record knows it, or a new one."""
    for model in (BufferedEvent, Batch, Bucket, FlowCounter, FlowMinute):
        model.objects.all().delete()
    if positions:
        Watermark.objects.all().delete()
    Watermark.objects.update(next_offset=0)


@embedded
def test_a_database_that_is_older_than_kafka_catches_up(make_topic):
    for name in ("transfer-requests", "transfer-batches"):
        make_topic(name)
    produce("transfer-requests", order("A1"))
    call_command("ingest_events", once=True)
    Bucket.objects.filled().update(urged="manual", due_at=database_now())
    call_command("flush_buffer", once=True)
    forget(positions=False)
    call_command("ingest_events", once=True)
    call_command("flush_buffer", once=True)
    assert [row.status for row in BufferedEvent.objects.all()] == ["sent"]
    forget(positions=True)
    call_command("rebuild_buffer")
    assert [row.status for row in BufferedEvent.objects.all()] == ["sent"]


@embedded
def test_a_payment_becomes_movements(make_topic, settings):
    settings.LEDGER_UNKNOWN_STOCK = "create"
    sources.cache_clear()  # the prefix is this test's own
    for name in settings.MOVEMENTS:
        make_topic(name)
    payment = {"saleOrderId": "S1", "merchantId": "M1", "items": [{"stockId": "ST-1", "quantity": 2}]}
    produce("PAYMENT_SUCCESS", msgspec.json.encode(payment), b"{")
    call_command("track_inventory", once=True)
    pull("requeue", [DeadLetter.objects.get().pk], Operator("M. Okafor"), "look again")
    call_command("verify", flow="ledger")
    sources.cache_clear()
    assert InventoryTracking.objects.get().delta == -2


@embedded
def test_a_promise_becomes_a_message(make_topic, settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    make_topic("messages-in")
    promises = [envelope(), envelope(), envelope("another", channel="kafka")]
    produce("messages-in", *map(msgspec.json.encode, promises))
    call_command("ingest_messages", once=True)
    settings.MESSAGES_IN = {"messages-in": {"": ["email", "kafka"]}}
    payload = {"topic": "invoices", "key": "I-1", "value": {}}
    copy = msgspec.json.encode(envelope("another", channel="kafka", payload=payload)).decode()
    requeue_copy(DeadLetter.objects.get().pk, copy, 0, Operator("M. Okafor"), "put right")
    look_after(database_now())
    call_command("verify", flow="messages-in")
    promised = OutboxMessage.objects.exclude(event_type="message.refused")
    assert sorted(message.channel for message in promised) == ["email", "kafka"]


@embedded
def test_a_throttler_starts(topics):
    call_command("run_throttler", once=True)


def test_a_job_applies_webhooks():
    assert apply_webhooks() == "nothing"


def test_metrics_ask_every_flow(client):
    assert b"spillway_" in client.get("/metrics").content
