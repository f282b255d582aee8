"""How long the letters of a batch are listed: as long as letters are kept; the batch and its totals stay."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from config.database.chunks import delete_in_chunks
from outbox.replay.batches.models import ReplayBatch, ReplayItem


def sweep(now: datetime) -> int:
    """Delete the items of batches that ended longer ago than DEAD_LETTER_RETENTION_DAYS; returns how many."""
    old = now - timedelta(days=settings.DEAD_LETTER_RETENTION_DAYS)
    _throw_away(old, now)
    ended = ReplayBatch.objects.filter(finished_at__lt=old, items_gone_at=None, requeued=0)
    swept = 0
    for batch in ended.order_by("pk"):
        # Said first: a sweep that is killed half-way must not leave totals that look wrong.
        ReplayBatch.objects.filter(pk=batch.pk).update(items_gone_at=now)
        swept += delete_in_chunks(ReplayItem.objects.of(batch))
    return swept + _rest(now)


def _throw_away(old: datetime, now: datetime) -> None:
    """Previews that nobody has confirmed in all that time: a worker puts their letters back, as of any cancelled batch."""
    drafts = ReplayBatch.objects.filter(state=ReplayBatch.State.PREVIEWED, previewed_at__lt=old)
    drafts.update(state=ReplayBatch.State.CANCELLED, note="Cancelled: nobody confirmed it.", finished_at=now)


def _rest(now: datetime) -> int:
    """What a killed sweep has left."""
    gone = ReplayBatch.objects.filter(items_gone_at__lt=now, items_gone_at__gt=now - timedelta(days=7))
    return sum(delete_in_chunks(ReplayItem.objects.of(batch)) for batch in gone)
