"""Plausible rows of a morning at 131 warehouses, for pictures; nothing here is ever called by Spillway."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.ingest.batch import REASONS
from buffer.ingest.handler import Ingest
from buffer.streams import streams
from config.kafka import RecordBatch, Replayed
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.models import FlowCounter, FlowMinute, Watermark
from outbox.letters.burial import Letter, bury
from throttler.models import LaneOwner

Letters = Iterator[tuple[datetime, Letter]]

STREAM = "transfer-requests"
TOPIC_ID = "q1Sh-9zWR2yT4m0pKc7n1A"
OFFSETS = count()
SKUS = ["BRD-24", "BTR-250", "CRS-06", "EGG-30", "MLK-1L", "SUG-5K"]
ROLLING = random.Random()
USUAL = {"read": 12_700, "accepted": 12_400, "redelivered": 3, "batches_sent": 14, "events_sent": 12_300}
TOO_LARGE = "MessageSizeTooLargeError: the topic allows 524288 bytes"
BROKEN: list[
    tuple[int, int, dict[str, Any]]
] = [  # how many letters, since how many minutes, what in an order makes them
    (14, 300, {"items": [{"sku": "BRD-24"}]}),
    (6, 1100, {"note": "caf\udce9"}),
    (3, 700, {"ordered_at": "2024-09-01T06:00:00Z"}),
]
LATE, LATE_FOR = 45, 41  # letters, minutes
TRAIL = [  # minutes ago, who, verb, subject, why, result
    (3, "M. Okafor", "flush now", "WH-07", "Truck leaves at nine, the warehouse called", "done"),
    (
        31,
        "M. Okafor",
        "requeue",
        "Letter wrong_field A-55790",
        "Supplier confirmed 12 pieces by phone",
        "handled again",
    ),
    (52, "A. Petrov", "hold", "WH-13", "Stocktake until noon", "done"),
    (
        180,
        "A. Petrov, by command",
        "discard",
        "Letter wrong_field A-10003",
        "Test order of the training shop",
        "discarded",
    ),
    (300, "S. Ito", "withdraw", "A-20811", "Customer cancelled, ticket 4471", "done"),
]


def fill(busy: bool) -> None:
    """`busy` adds what a bad morning has."""
    ROLLING.seed(42)  # the same rows every time
    now = timezone.now()
    User.objects.create_superuser("ito", password="pictures", first_name="S. Ito")
    _counters(now, busy)
    _positions(now, busy)
    for number in range(1, 132):
        _warehouse(f"WH-{number:02d}", now, number)
    if busy:
        _trouble(now)
    for minutes, who, verb, subject, reason, result in TRAIL:
        OperatorAction.objects.create(
            actor_name=who, verb=verb, subject=subject, reason=reason, result=result,
            created_at=now - timedelta(minutes=minutes),
        )  # fmt: skip


def freshen() -> None:
    """What the workers of a living installation do every second."""
    now = timezone.now()
    Watermark.objects.filter(alarm="").update(caught_up_at=now - timedelta(seconds=0.4), updated_at=now)
    LaneOwner.objects.update(updated_at=now)


def _counters(now: datetime, busy: bool) -> None:
    minute = int(now.timestamp() // 60)
    for ago in range(60):
        share = (now.timestamp() % 60) / 60 if ago == 0 else 1
        values = {name: int(value * ROLLING.uniform(0.9, 1.1) * share) for name, value in USUAL.items()}
        values["open"] = ROLLING.randint(-40, 46)
        values["late"] = 1 + ago % 2 if busy and ago < 41 else 0
        for name, value in values.items():
            FlowMinute.objects.create(flow=STREAM, name=name, minute=minute - ago, value=value)


def _positions(now: datetime, busy: bool) -> None:
    for partition in range(12):
        stopped = busy and partition == 7
        seen = now - timedelta(minutes=38 * stopped)
        Watermark.objects.create(
            group="buffer-ingest", topic=STREAM, partition=partition, topic_id=TOPIC_ID,
            next_offset=1_882_041 + partition * 977, end_offset=1_882_049 + partition * 977 + 4_100 * stopped,
            caught_up_at=seen, updated_at=seen,
            alarm="The topic was deleted and created again: its id is not the one that was read." * stopped,
        )  # fmt: skip


def _warehouse(location: str, now: datetime, number: int) -> None:
    waiting = 12 if location == "WH-07" else ROLLING.randint(1, 120 if number < 40 else 20)
    first = now - timedelta(seconds=ROLLING.randint(10, 250))
    last = first + timedelta(seconds=ROLLING.randint(0, 9))
    idle, cap = last + timedelta(minutes=5), first + timedelta(minutes=30)
    Bucket.objects.create(
        stream=STREAM, location_id=location, open_count=waiting, sequence=18, first_arrival=first,
        last_arrival=last, idle_at=idle, cap_at=cap, due_at=now if number % 9 == 4 else idle,
        topic=STREAM, source_partition=(number + 4) % 12,
    )  # fmt: skip
    FlowCounter.objects.create(flow=STREAM, scope=location, name="open", value=waiting)
    if location in ("WH-07", "WH-42"):
        for batch in range(6):
            _batch(location, now - timedelta(minutes=11 * batch, seconds=3), 18 - batch)
        _orders(location, first, 12)


def _orders(location: str, came: datetime, number: int, **more: Any) -> list[BufferedEvent]:
    rows = []
    for index in range(number):
        order = f"A-{ROLLING.randint(10_000, 99_999)}"
        items = [{"sku": sku, "quantity": ROLLING.randint(1, 9)} for sku in ROLLING.sample(SKUS, 2)]
        message = {"order_id": order, "location_id": location, "ordered_at": came.isoformat(), "items": items}
        rows.append(BufferedEvent(
            partition_key=came.year * 100 + came.month, stream=STREAM, location_id=location, order_id=order,
            payload=json.dumps(message), payload_hash=f"{ROLLING.getrandbits(128):032x}", source_partition=7,
            source_offset=1_882_000 + ROLLING.randint(0, 10**6),
            source_timestamp=int(came.timestamp() * 1000),
            created_at=came, updated_at=came, revision=index % 3 // 2, **more,
        ))  # fmt: skip
    return BufferedEvent.objects.bulk_create(rows)


def _batch(location: str, cut: datetime, sequence: int, status: str = "sent", **more: Any) -> Batch:
    batch_id = uuid.UUID(int=ROLLING.getrandbits(128), version=5)
    taken = "sent" if status == "sent" else "claimed"
    orders = _orders(location, cut - timedelta(minutes=5), 9, status=taken, batch_id=batch_id)
    message = {
        "batch_id": str(batch_id), "location_id": location, "flushed_at": cut.isoformat(),
        "order_ids": [order.order_id for order in orders],
        "items": [{"sku": sku, "quantity": ROLLING.randint(4, 60)} for sku in SKUS],
    }  # fmt: skip
    if status == "sent":
        sent = cut + timedelta(seconds=0.4)
        more |= {"sent_at": sent, "output_partition": 3, "output_offset": 88_000 + sequence}
    month = cut.year * 100 + cut.month
    return Batch.objects.create(
        batch_id=batch_id, stream=STREAM, location_id=location, sequence=sequence, reason="idle",
        status=status,
        partition_key=month, event_count=len(orders), payload=json.dumps(message), months=[month],
        headers={"batch_id": str(batch_id), "correlation_id": str(batch_id)},
        event_ids=[order.pk for order in orders], claimed_at=cut, **more,
    )  # fmt: skip


def _trouble(now: datetime) -> None:
    refused = _batch("WH-42", now - timedelta(minutes=26), 31, "parked", attempts=1, error=TOO_LARGE)
    letters = [*_refused(refused, now - timedelta(minutes=26)), *_broken(now), *_late(now)]
    for came, letter in sorted(letters, key=lambda pair: pair[0]):
        bury([letter], "buffer-ingest", came)
    Bucket.objects.filter(location_id="WH-13").update(held=True, due_at=None)


def _refused(batch: Batch, came: datetime) -> Letters:
    """As the flusher buries a batch that the broker will never take."""
    record = _record(batch.location_id, batch.payload.encode(), came)
    yield came, Letter(STREAM, "publish", "batch_refused", TOO_LARGE, record, str(batch.pk), business_key=str(batch.pk))


def _broken(now: datetime) -> Letters:
    """Records that ingestion refuses, by its own words."""
    for number, minutes, fault in BROKEN:
        for index in range(number):
            came = now - timedelta(minutes=minutes * (1 - 0.9 * index / number))
            message = {
                "order_id": f"A-{ROLLING.randint(10_000, 99_999)}",
                "location_id": "WH-42",
                **_said(came),
                **fault,
            }
            value = json.dumps(message, ensure_ascii=False).encode(errors="surrogateescape")
            record = _record("WH-42", value, came)
            batch = RecordBatch([record], {STREAM: TOPIC_ID})
            [letter] = Ingest(streams()[STREAM]).prepare(batch).letters
            yield came, letter


def _late(now: datetime) -> Letters:
    """Newer versions of orders that were sent before they came."""
    sent = BufferedEvent.objects.filter(location_id="WH-42", batch_id__in=Batch.objects.sent().values("pk"))
    for index, event in enumerate(sent.order_by("created_at", "pk")[:LATE]):
        came = now - timedelta(minutes=LATE_FOR * (1 - 0.9 * index / LATE))
        message = json.loads(event.payload)
        message["items"][0]["quantity"] += 1
        record = _record("WH-42", json.dumps(message).encode(), came)
        why = REASONS["late_event"]
        yield came, Letter(STREAM, "late", "late_event", why, record, TOPIC_ID, business_key=event.order_id)


def _said(came: datetime) -> dict[str, Any]:
    return {"ordered_at": came.isoformat(), "items": [{"sku": "BRD-24", "quantity": 3}]}


def _record(key: str, value: bytes, came: datetime) -> Replayed:
    trace = [("correlation_id", b"%032x" % ROLLING.getrandbits(128))]
    offset = 1_882_041 + next(OFFSETS)
    return Replayed(STREAM, 3, offset, int(came.timestamp() * 1000), key.encode(), value, trace)
