"""A table, and one in partitions."""

from datetime import datetime, timedelta

from django.db import models

from spillway_ext import delete_in_chunks, uuid7


class DepotNote(models.Model):
    depot = models.CharField(max_length=40)
    text = models.TextField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.depot


class Visit(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7)
    depot = models.CharField(max_length=40)

    def __str__(self) -> str:
        return self.depot


def sweep_notes(now: datetime) -> int:
    return delete_in_chunks(DepotNote.objects.filter(created_at__lt=now - timedelta(days=30)).order_by("pk"))
