"""Uncertain messages: proof that comes late settles them, and time decides about the rest."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from config.clock import database_now
from config.logs import log
from outbox import counters
from outbox.burial import bury
from outbox.fate import letter_of, limits
from outbox.handlers import Message, MessageHandler
from outbox.messages import FLOW, DeliveryAttempt, OutboxMessage
from outbox.scan import floor, read_messages

A_ROUND = 200
UNDECIDED = "nobody could tell whether it was accepted, after every try"
PROVABLE = ("uncertain", "processing", "pending")


def confirm(message_id: uuid.UUID, receipt: str, now: datetime) -> bool:
    """The other side proved that it accepted the message: sent, and whatever try was planned is cancelled.

    Called by webhooks, in any transaction or none. A worker that is sending it again at this moment finds it
    settled. False when there is nothing to settle: already sent, in a final state, or never tried.
    """
    with transaction.atomic():
        tried = OutboxMessage.objects.filter(pk=message_id, state__in=PROVABLE, attempts__gt=0)
        channel = tried.values_list("channel", flat=True).first()
        changed = tried.update(
            state=OutboxMessage.State.SENT, sent_at=now, receipt=receipt[:300], lease_until=None, error_class="",
            error="",
        )  # fmt: skip
        if changed:
            DeliveryAttempt.objects.of([message_id]).open().close(now, "sent", receipt=receipt[:300])
            counters.add({(FLOW, channel or "", "confirmed"): 1}, now)
            log.info("message_confirmed", message_id=str(message_id), channel=channel)
    return bool(changed)


def decide(handler: MessageHandler) -> int:
    """Decide about the channel's uncertain messages whose time is over; returns how many moved.

    "retry" tries again, as long as there are tries left; "hold" leaves them to a person, and their successors
    go on.
    """
    if handler.when_uncertain() != "retry":
        return 0
    lowest = floor.read()
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
