"""Deletes old idempotency keys daily, and counts what was deleted."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from config.database.chunks import in_chunks
from outbox.bookkeeping import counters
from outbox.messages.insert import SCOPE
from outbox.messages.models import FLOW, IdempotencyKey

KEYS_SWEPT = "keys_swept"


def sweep_keys(now: datetime) -> int:
    """Delete keys older than OUTBOX_IDEMPOTENCY_DAYS; returns how many.

    Keys of messages are the witnesses of what was published: `verify` needs to know how many are gone.
    """
    oldest = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
    expired = IdempotencyKey.objects.filter(created_at__lt=oldest).order_by("created_at")
    return sum(_delete_counted(keys, now) for keys in in_chunks(expired))


def _delete_counted(keys: QuerySet, now: datetime) -> int:
    with transaction.atomic():
        of_messages = keys.filter(scope=SCOPE).delete()[0]
        of_requests = keys.delete()[0]
        counters.add({(FLOW, "", KEYS_SWEPT): of_messages}, now)
    return of_messages + of_requests
