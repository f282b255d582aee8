"""Many messages at once, without keys: what a test or a measurement starts from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from config.database.upsert import Upsert
from outbox.messages.publish import expiry_of
from outbox.models import OutboxMessage

MESSAGES = Upsert(
    OutboxMessage,
    columns="id channel event_type aggregate payload correlation_id traceparent",
    constants=(
        "state attempts available_at expires_at times_uncertain times_revived error_class error receipt created_at"
    ),
    key="",
    update={},
)


def beginning(now: datetime) -> dict[str, Any]:
    """What every new message starts with."""
    new = {"state": "pending", "attempts": 0, "times_uncertain": 0, "times_revived": 0}
    empty = dict.fromkeys(["error_class", "error", "receipt"], "")
    return {**new, **empty, "available_at": now, "expires_at": expiry_of(now), "created_at": now}
