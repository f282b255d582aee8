"""Queries about dead letters and their groups."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import F


class DeadLetterQuerySet(models.QuerySet):
    """Dead letters."""

    def open(self) -> DeadLetterQuerySet:
        return self.filter(status="open")

    def closed(self) -> DeadLetterQuerySet:
        return self.exclude(status="open")

    def of_source(self, source: str) -> DeadLetterQuerySet:
        return self.filter(source=source)

    def of_group(self, group_id: int) -> DeadLetterQuerySet:
        return self.filter(group_id=group_id)

    def newest_first(self) -> DeadLetterQuerySet:
        return self.order_by("-id")

    def move(self, old: str, new: str, now: datetime, note: str) -> int:
        """Change the status of those rows that still have the old one; returns how many."""
        return self.filter(status=old).update(status=new, updated_at=now, note=note)


class FailureGroupQuerySet(models.QuerySet):
    """Failure groups. There are few; their counts are stored, never computed for a page."""

    def needing_work(self) -> FailureGroupQuerySet:
        return self.filter(open_count__gt=0)

    def shift_open(self, difference: int) -> int:
        """Add to the open count of these groups."""
        return self.update(open_count=F("open_count") + difference)
