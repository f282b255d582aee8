"""Which customer's messages are nearest to the end of their life, as the mirror and the customers' lifetimes say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, QuerySet, Subquery

from throttler.customers.models import Customer
from throttler.lanes.models import Lane

MOST = 1000  # lanes that are looked at, of those that wait longest


@dataclass(frozen=True)
class NearestEnd:
    """A lane whose oldest message began at `since`; it lives `ttl` seconds unless it names a shorter time itself."""

    customer_id: str
    backlog: int
    since: datetime
    ttl: int

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.ttl)

    def used(self, now: datetime) -> float:
        """How much of its life is over, of 1."""
        return max(0.0, (now - self.since).total_seconds()) / self.ttl


def nearest_end(now: datetime) -> NearestEnd | None:
    """Of the lanes that wait longest, and of those that wait longest among customers with a shorter life."""
    shorter = Customer.objects.filter(ttl_seconds__lt=settings.THROTTLER_TTL_SECONDS).values("pk")
    waiting = Lane.objects.filter(oldest_at__isnull=False)
    ends = [*_ends(waiting), *_ends(waiting.filter(customer_id__in=shorter))]
    return max(ends, key=lambda end: end.used(now), default=None)


def _ends(lanes: QuerySet[Lane]) -> Iterator[NearestEnd]:
    own = Customer.objects.filter(pk=OuterRef("customer_id")).values("ttl_seconds")
    rows: Any = lanes.annotate(own=Subquery(own[:1])).order_by("oldest_at")
    for customer_id, backlog, since, ttl in rows.values_list("customer_id", "backlog", "oldest_at", "own")[:MOST]:
        yield NearestEnd(customer_id, backlog, since, settings.THROTTLER_TTL_SECONDS if ttl is None else ttl)
