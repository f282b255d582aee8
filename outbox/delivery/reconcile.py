"""Decides about uncertain messages for which no proof came in time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.channels.handlers import Message, MessageHandler
from outbox.delivery.candidates import lower_bound, read_messages
from outbox.delivery.next_state import letter_of, limits
from outbox.letters.burial import bury
from outbox.messages.models import FLOW, OutboxMessage

A_ROUND = 200
UNDECIDED = "nobody could tell whether it was accepted, after every try"


def decide(handler: MessageHandler) -> int:
    """Decide about the channel's uncertain messages whose time is over; returns how many moved.

    "retry" tries again, as long as there are tries left; "hold" leaves them to a person, and their successors
    go on.
    """
    if handler.when_uncertain() != "retry":
        return 0
    lowest = lower_bound.read()
    with transaction.atomic():
        now = database_now()
        undecided = OutboxMessage.objects.in_channel(handler.name).uncertain().filter(available_at__lte=now)
        messages = read_messages(undecided.from_id(lowest).locked()[:A_ROUND])
        spent = [m for m in messages if m.attempts > limits().attempts]
        again = [m for m in messages if m.attempts <= limits().attempts]
        moved = retry([m.id for m in again], now)
        give_up(handler.name, spent, UNDECIDED, now)
        if messages:
            counters.add({(FLOW, handler.name, "retried_uncertain"): moved}, now)
    return len(messages)


def retry(ids: Sequence[uuid.UUID], now: datetime) -> int:
    """uncertain → pending, at once; how often it was uncertain stays written on it."""
    uncertain = OutboxMessage.objects.among(ids).uncertain()
    return uncertain.update(state=OutboxMessage.State.PENDING, available_at=now, lease_token=None)


def give_up(channel: str, messages: Sequence[Message], why: str, now: datetime) -> int:
    """uncertain → dead letter; the messages are locked by the caller."""
    if not messages:
        return 0
    rows = OutboxMessage.objects.among([m.id for m in messages]).uncertain()
    ended = rows.update(state=OutboxMessage.State.DEAD_LETTERED, error=why)
    bury([letter_of(channel, m, "deliver", "uncertain", why, now) for m in messages], FLOW, now)
    counters.add({(FLOW, channel, "given_up"): ended}, now)
    return ended
