"""Records of `messages-in`, and the handler on the test database."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec
import pytest
from django.db import transaction

from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from config.kafka.records import Header
from outbox.bookkeeping import counters
from outbox.intake.envelope import Taken
from outbox.intake.handler import NAME, Intake
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from tests.conftest import TOPIC_ID, move_on

TOPIC = "messages-in"
_offsets = count()
MAIL = {"to": "ada@example.com", "subject": "Your invoice", "text": "It is ready.\n"}


def envelope(key: str | int = "I-1/issued", **more: Any) -> dict[str, Any]:
    """A promise; `more` overrides or adds fields, None takes one away."""
    fields = {
        "channel": "email",
        "event_type": "invoice.issued",
        "aggregate": "invoice:I-1",
        "idempotency_key": key,
        "payload": MAIL,
        **more,
    }
    return {name: value for name, value in fields.items() if value is not None}


def record(
    value: Mapping[str, Any] | bytes | None,
    *,
    offset: int | None = None,
    partition: int = 0,
    timestamp: int = 0,
    topic: str = TOPIC,
    key: bytes = b"invoice:I-1",
    headers: Sequence[Header] = (),
) -> Replayed:
    """A record that was written just now; without an offset it stands behind every earlier one."""
    raw = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    number = next(_offsets) if offset is None else offset
    return Replayed(topic, partition, number, timestamp or int(time.time() * 1000), key, raw, headers)


def write(*records: Replayed, handler: Intake | None = None, revision: int = 0, from_log: bool = False) -> Taken:
    """Store records as the consumer would."""
    handler = handler or Intake()
    batch = RecordBatch(list(records), {each.topic: TOPIC_ID for each in records}, revision=revision, from_log=from_log)
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        now = database_now()
        taken = handler.apply(batch, now)
        move_on(handler.group, batch, now)
    return taken


def outcomes(taken: Taken) -> dict[str, int]:
    found = {"stored": 0, "repeated": 0, "parked": 0}
    for (_place, outcome), number in taken.outcomes.items():
        found[outcome] += number
    return found


def stored() -> list[OutboxMessage]:
    return list(OutboxMessage.objects.order_by("id"))


def reasons() -> list[str]:
    return sorted(DeadLetter.objects.values_list("reason", flat=True))


def counted() -> dict[str, int]:
    return counters.totals(NAME)


@pytest.fixture(autouse=True)
def nobody_is_told(settings: Any) -> None:
    """Refused records make letters alone; tests/outbox/intake/test_refusals.py is about what is told of them."""
    settings.MESSAGES_REFUSED = False
