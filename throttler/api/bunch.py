"""A bunch as single notifications: their ids, their bytes, and their way to the topic."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from config.gate import InvalidRecord
from config.kafka import Outgoing, Producer, Sent, topic_name
from outbox.api.problems import Problem
from throttler import messages

TOPIC = "notifications-in"
BUNCHES = uuid.UUID("6f1d7f1e-5b0e-4c58-9a57-8f6f0a1c2d3e")  # the namespace of the ids
PATIENCE = 15.0  # seconds


@cache
def producer() -> Producer:
    """The one of this process, which is kept."""
    return Producer(patience=PATIENCE, max_block_ms=5_000, delivery_timeout_ms=10_000, request_timeout_ms=5_000)


def ids_of(token_id: int, key: str, count: int) -> list[str]:
    """One id for each recipient: the same token, key and place give the same again."""
    return [str(uuid.uuid5(BUNCHES, f"{token_id} {key} {index}")) for index in range(count)]


def split(customer_id: str, ids: Sequence[str], body: dict[str, Any], now: datetime) -> list[Outgoing]:
    """A record for each recipient; raises Problem that names the recipients whose record the throttler would refuse."""
    topic, gate = topic_name(TOPIC), messages.gate()
    common = {"customer_id": customer_id, "message": body["message"], "created_at": now.isoformat()}
    if body["ttl_seconds"] is not None:
        common["ttl_seconds"] = body["ttl_seconds"]
    found, errors = [], []
    for index, (notification_id, recipient) in enumerate(zip(ids, body["recipients"], strict=True)):
        value = msgspec.json.encode({"notification_id": notification_id, "recipient": recipient, **common})
        try:
            gate.decode(value)
        except InvalidRecord as refused:
            errors.append({"where": f"body.recipients.{index}", "what": str(refused)})
        found.append(Outgoing(topic, customer_id, value))
    if errors:
        raise Problem("invalid", errors=errors)
    return found


def send(records: Sequence[Outgoing]) -> None:
    """Produce all; raises Problem when one was not acknowledged: some may be there, none is said to be."""
    missing = sum(not isinstance(outcome, Sent) for outcome in producer().send_all(records))
    if missing:
        raise Problem("unavailable", f"{missing} of {len(records)} were not acknowledged by Kafka.", retry_after=2)
