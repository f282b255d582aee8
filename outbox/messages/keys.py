"""Daily: idempotency keys beyond their window go, and what went is counted."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from outbox.bookkeeping import counters
from outbox.messages.insert import SCOPE
from outbox.messages.models import FLOW, IdempotencyKey

CHUNK = 2000


def sweep_keys(now: datetime) -> int:
    """Delete keys older than OUTBOX_IDEMPOTENCY_DAYS; returns how many.

    Keys of messages are the witnesses of what was published: `verify` needs to know how many are gone.
    """
    oldest = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
    swept = 0
    while gone := _sweep_some(oldest, now):
        swept += gone
    return swept


def _sweep_some(oldest: datetime, now: datetime) -> int:
    with transaction.atomic():
        expired = IdempotencyKey.objects.filter(created_at__lt=oldest).order_by("created_at")
        ids = list(expired.values_list("pk", flat=True)[:CHUNK])
        of_messages = IdempotencyKey.objects.filter(pk__in=ids, scope=SCOPE).delete()[0]
        of_requests = IdempotencyKey.objects.filter(pk__in=ids).delete()[0]
        counters.add({(FLOW, "", KEYS_SWEPT): of_messages}, now)
    return of_messages + of_requests


KEYS_SWEPT = "keys_swept"
