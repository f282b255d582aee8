"""The aggregator in numbers: counters and indexed look-ups, for home and for /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import Count, Max, Min, Q

from buffer.events.models import Batch, Bucket
from buffer.streams import GROUP, streams
from config.flows import Reading
from config.kafka import topic_name
from config.telemetry import metrics
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.progress import Progress
from outbox.bookkeeping.stages import Trends
from outbox.letters import overview

MOST_BATCHES = 1000
OVERDUE = timedelta(seconds=60)


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the buffer."""
    numbers = Numbers(now)
    for name in numbers.names:
        yield Reading(metrics.PENDING_EVENTS, counters.totals(name).get("open", 0), {"stream": name})
    yield Reading(metrics.OLDEST_PENDING, numbers.oldest.total_seconds() if numbers.oldest else 0)
    yield from overview.gauges(numbers.names)
    yield from progress.gauges(numbers.progress)


@dataclass
class Numbers(Trends):
    """Counters and indexed look-ups, each asked once."""

    names: Sequence[str] = field(default_factory=lambda: list(streams()))

    @cached_property
    def progress(self) -> Progress:
        topics = [topic_name(stream.topic) for stream in streams().values()]
        return Progress.of(topic_name(GROUP), topics, self.now)

    @cached_property
    def waiting(self) -> dict[str, Any]:
        """The buckets that hold something, in one query over (stream, due_at)."""
        rows = Bucket.objects.filter(stream__in=self.names).waiting().order_by()
        due = Count("pk", filter=Q(due_at__lte=self.now))
        return rows.aggregate(buckets=Count("pk"), oldest=Min("first_arrival"), due=due, due_since=Min("due_at"))

    @cached_property
    def held(self) -> dict[str, Any]:
        return Bucket.objects.filter(stream__in=self.names, held=True).aggregate(
            buckets=Count("pk"), since=Min("first_arrival")
        )

    @cached_property
    def unsent(self) -> list[Batch]:
        """Cut but not published, the oldest first."""
        fields = ("claimed_at", "attempts", "error")
        return list(Batch.objects.claimed().of_streams(self.names).oldest_first().only(*fields)[: MOST_BATCHES + 1])

    @cached_property
    def refused(self) -> int:
        return Batch.objects.parked().of_streams(self.names)[: MOST_BATCHES + 1].count()

    @cached_property
    def last_sent(self) -> datetime | None:
        newest = Batch.objects.sent().of_streams(self.names).order_by("-claimed_at")[:20]
        return newest.aggregate(last=Max("sent_at"))["last"]

    @property
    def oldest(self) -> timedelta | None:
        return self.now - self.waiting["oldest"] if self.waiting["oldest"] else None

    @property
    def overdue(self) -> timedelta:
        since = self.waiting["due_since"]
        return max(timedelta(0), self.now - since) if since else timedelta(0)

    @property
    def unsent_for(self) -> timedelta:
        return self.now - self.unsent[0].claimed_at if self.unsent else timedelta(0)

    @cached_property
    def open(self) -> int:
        return sum(counters.totals(name).get("open", 0) for name in self.names)

    def open_trend(self) -> list[int]:
        """Backwards from what is open now."""
        trend = [self.open]
        for change in reversed(self.history("open")[2:]):
            trend.append(trend[-1] - change)
        return trend[::-1]
