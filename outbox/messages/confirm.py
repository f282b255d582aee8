"""Settles a message when its provider proves later that it was accepted."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction

from config.telemetry.logs import log_committed
from outbox.bookkeeping import counters
from outbox.messages.models import FLOW, DeliveryAttempt, OutboxMessage

PROVABLE = ("uncertain", "processing", "pending")
# What is written of a message that the other side accepted.
ACCEPTED = {"state": OutboxMessage.State.SENT.value, "lease_until": None, "error_class": "", "error": ""}


def confirm(message_id: uuid.UUID, receipt: str, now: datetime) -> bool:
    """Mark a message as sent, because the other side proved that it accepted it; a planned retry is cancelled.

    Called by webhooks, in any transaction or none. A worker that is sending it again at this moment finds it
    settled. False when there is nothing to settle: already sent, in a final state, or never tried.
    """
    with transaction.atomic():
        tried = OutboxMessage.objects.filter(pk=message_id, state__in=PROVABLE, attempts__gt=0)
        columns = ("channel", "aggregate", "event_type", "correlation_id")
        channel, aggregate, event_type, correlation_id = tried.values_list(*columns).first() or ("", "", "", "")
        changed = tried.update(sent_at=now, receipt=receipt[:300], **ACCEPTED)
        if changed:
            DeliveryAttempt.objects.of([message_id]).close(now, "sent", receipt=receipt[:300])
            counters.add({(FLOW, channel, "confirmed"): 1}, now)
            log_committed(
                "message_confirmed", channel=channel, message_id=str(message_id), order_id=aggregate,
                event_type=event_type, correlation_id=correlation_id,
            )  # fmt: skip
    return bool(changed)
