"""Many messages at once, without keys: what a test or a measurement starts from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from config.database.upsert import Column, Constant, Upsert
from outbox.messages.insert import NEW
from outbox.messages.publish import expiry_of
from outbox.models import OutboxMessage

MESSAGES = Upsert(
    OutboxMessage,
    columns=[
        Column("id", "uuid"), Column("channel"), Column("event_type"), Column("aggregate"), Column("payload", "long"),
        Column("correlation_id"), Column("traceparent"),
    ],
    constants=[
        Constant("state"), Constant("attempts", "int"), Constant("available_at", "timestamp"),
        Constant("expires_at", "timestamp"), Constant("times_uncertain", "int"), Constant("times_revived", "int"),
        Constant("error_class"), Constant("error"), Constant("receipt"), Constant("created_at", "timestamp"),
    ],
    key=(),
    update={},
)  # fmt: skip


def beginning(now: datetime) -> dict[str, Any]:
    """What every new message starts with."""
    return {**NEW, "available_at": now, "expires_at": expiry_of(now), "created_at": now}
