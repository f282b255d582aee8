"""Queries for customers: by their id in pages, by what changed, and guarded by what was seen."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from django.db import models
from django.db.models import ProtectedError

# Owners poll what changed, and a row that is gone changes no more: they would keep its terms until they start again.
KEPT = "Customers are not deleted: set their rate and lifetime to the defaults instead."
SEEN = ("rates", "burst", "ttl_seconds", "weight", "held", "purge_before", "updated_at")


class CustomerQuerySet(models.QuerySet):
    def changed_since(self, moment: datetime) -> CustomerQuerySet:
        return self.filter(updated_at__gte=moment)

    def delete(self) -> NoReturn:
        raise ProtectedError(KEPT, set())

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def still_as(self, seen: models.Model) -> CustomerQuerySet:
        """The row of `seen`, unless somebody changed it since."""
        state: dict[str, Any] = {name: getattr(seen, name) for name in SEEN}
        return self.filter(pk=seen.pk, **state)

    def outliving(self, seconds: int) -> CustomerQuerySet:
        """Whose messages live longer than this."""
        return self.filter(ttl_seconds__gt=seconds)

    def held(self) -> CustomerQuerySet:
        return self.filter(models.Q(held=True) | models.Q(rates="0/s"))
