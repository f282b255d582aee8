"""Queries about dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import models

LISTED = 50  # letters of a query: each has up to four megabytes


class DeadLetterQuerySet(models.QuerySet):
    """Dead letters."""

    def open(self) -> DeadLetterQuerySet:
        return self.filter(status="open")

    def requeued(self) -> DeadLetterQuerySet:
        """Taken back, without proof of their effect."""
        return self.filter(status="requeued")

    def of_source(self, source: str) -> DeadLetterQuerySet:
        return self.filter(source=source)

    def of_group(self, group_id: int) -> DeadLetterQuerySet:
        return self.filter(group_id=group_id)

    def one_by_one(self) -> Iterator[Any]:
        """By rising id, a short query a chunk: the driver of MariaDB and MySQL holds the whole result of a query."""
        found: list[Any] = list(self.order_by("id")[:LISTED])
        while found:
            yield from found
            found = list(self.filter(pk__gt=found[-1].pk).order_by("id")[:LISTED])

    def newest_first(self) -> DeadLetterQuerySet:
        return self.order_by("-id")
