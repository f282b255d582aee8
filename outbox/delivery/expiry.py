"""Expires messages that were not sent in time, with a dead letter, also in a paused or broken channel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from config.database.clock import database_now
from config.database.rewrite import Rewrite
from config.telemetry.logs import log
from outbox.bookkeeping import counters
from outbox.channels.handlers import Message
from outbox.delivery.candidates import find_due, lock_among, lower_bound
from outbox.delivery.next_state import letter_of
from outbox.letters.burial import bury
from outbox.messages.models import FLOW, OutboxMessage

A_ROUND = 200

EXPIRE = Rewrite(
    OutboxMessage,
    key="id",
    changes="",
    constants="state error_class error",
    guard="old.state = 'pending'",
    span="id",
)
TEXT = "it was not sent before its expires_at"


def expire(channel: str, messages: Sequence[Message], now: datetime) -> None:
    """Expire locked pending messages, in the caller's transaction."""
    rows = [(message.id.hex,) for message in messages]
    ended = EXPIRE.run(rows, {"state": OutboxMessage.State.EXPIRED.value, "error_class": "expired", "error": TEXT})
    if ended != len(rows):
        raise RuntimeError(f"expired {ended} of {len(rows)} locked messages")
    bury([letter_of(channel, message, "expire", "expired", TEXT, now) for message in messages], FLOW, now)
    counters.add({(FLOW, channel, "expired"): len(rows)}, now)
    log.warning("messages_expired", channel=channel, messages=len(rows))


def expire_due(channel: str) -> int:
    """Expire the oldest due messages that are too old; returns how many."""
    lowest, now = lower_bound.read(), database_now()
    oldest = OutboxMessage.objects.due(channel, now).from_id(lowest).values_list("id", "expires_at")
    late = [pk for pk, expires_at in find_due(oldest[:A_ROUND]) if expires_at <= now]
    if not late:
        return 0
    with transaction.atomic():
        messages = lock_among(late, channel, now, lowest, A_ROUND)
        expire(channel, messages, now)
    return len(messages)
