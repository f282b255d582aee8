"""Queries for customers: by their id in pages, by what changed, and guarded by what was seen."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from throttler.customers.models import Customer

SEEN = ("rates", "burst", "ttl_seconds", "weight", "held", "purge_before", "updated_at")


class CustomerQuerySet(models.QuerySet["Customer"]):
    def changed_since(self, moment: datetime) -> CustomerQuerySet:
        return self.filter(updated_at__gte=moment)

    def still_as(self, seen: Customer) -> CustomerQuerySet:
        """The row of `seen`, unless somebody changed it since."""
        state: dict[str, Any] = {name: getattr(seen, name) for name in SEEN}
        return self.filter(pk=seen.pk, **state)

    def held(self) -> CustomerQuerySet:
        return self.filter(models.Q(held=True) | models.Q(rates="0/s"))
