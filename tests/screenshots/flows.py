"""A morning's stock and mails for the pictures, made by the same code that makes them in earnest."""

from __future__ import annotations

import random
import threading
import uuid
from datetime import datetime, timedelta
from itertools import islice

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from buffer.ledger.flow import stock_traffic
from buffer.ledger.handler import Track
from buffer.models import InventoryStock
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed, topic_name
from notifications.flow import next_order_event
from outbox.bookkeeping.models import FlowCounter, FlowMinute, Watermark
from outbox.channels import permits
from outbox.channels.handlers import handlers
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage

ROLLING = random.Random()
USUAL = {"ledger": {"read": 5_760, "applied": 5_650, "duplicate": 2, "movements": 11_200}, "outbox": {"sent": 1_080}}
RECORDS = 600


def fill_flows() -> None:
    """Stock with its movements; mails that went out, and some that wait behind a paused channel."""
    ROLLING.seed(7)  # the same rows every time
    now = timezone.now()
    _counters(now)
    _positions(now)
    _stock()
    _mails()


def _counters(now: datetime) -> None:
    minute = int(now.timestamp() // 60)
    for flow, kinds in USUAL.items():
        for ago in range(60):
            share = (now.timestamp() % 60) / 60 if ago == 0 else 1
            for name, usual in kinds.items():
                value = int(usual * ROLLING.uniform(0.9, 1.1) * share)
                FlowMinute.objects.update_or_create(
                    flow=flow, name=name, minute=minute - ago, defaults={"value": value}
                )
    FlowCounter.objects.create(flow="ledger", scope="pictures", name="movements", value=18_200_000)


def _positions(now: datetime) -> None:
    for topic in settings.MOVEMENTS:
        Watermark.objects.create(
            group="buffer-track", topic=topic_name(topic), partition=0, topic_id="b7Sh-9zWR2yT4m0pKc7n1A",
            next_offset=904_000, end_offset=904_007, caught_up_at=now, updated_at=now,
        )  # fmt: skip


def _stock() -> None:
    """Through the ledger's own handler, stocks made as they come."""
    settings.LEDGER_UNKNOWN_STOCK = "create"
    found = islice(stock_traffic(3, poison=0), RECORDS)
    at = int(timezone.now().timestamp() * 1000)
    records = [
        Replayed(sample.topic, 0, offset, at, sample.key.encode(), sample.value) for offset, sample in enumerate(found)
    ]
    handler = Track()
    batch = RecordBatch(records, {record.topic: str(uuid.UUID(int=1)) for record in records})
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        handler.write(batch, database_now())


def busiest_stock() -> str:
    """The stock with the longest history."""
    return max(InventoryStock.objects.all(), key=lambda stock: stock.quantity if stock.quantity > 0 else 0).pk


def _mails() -> None:
    email = handlers()["email"]
    for _ in range(40):
        next_order_event(ROLLING)
    deliver(claim(email, "cdc", 100), email, threading.Event())
    for _ in range(25):
        next_order_event(ROLLING)
    waiting = OutboxMessage.objects.pending()
    waiting.update(available_at=database_now() - timedelta(minutes=2))
    permits.pause("email", Operator("spillway"), "The provider refuses our login (401).")
