"""How long edited copies are kept: as long as their letters, whose months are dropped as a whole."""

from __future__ import annotations

from datetime import datetime

from config.database.chunks import by_key
from outbox.letters.models import DeadLetter, PayloadRevision

CHUNK = 500


def sweep(now: datetime) -> int:
    """Delete the copies of letters that are gone; returns how many."""
    swept = 0
    for chunk in by_key(PayloadRevision.objects.values_list("pk", "letter"), CHUNK):
        there = set(DeadLetter.objects.filter(pk__in={letter for _, letter in chunk}).values_list("pk", flat=True))
        gone = [pk for pk, letter in chunk if letter not in there]
        swept += PayloadRevision.objects.filter(pk__in=gone).delete()[0] if gone else 0
    return swept
