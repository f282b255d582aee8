"""Sentences about events, buckets and batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Case, Count, DateTimeField, Exists, F, OuterRef, Value, When

from outbox.bookkeeping.leases import ClaimQuerySet

# What the row of a bucket says while nothing waits there.
EMPTY = {"open_count": 0, "urged": "", "due_at": None, "first_arrival": None, "cap_at": None}


class EventQuerySet(models.QuerySet):
    """Rows of the event buffer; big, so every query names an index prefix."""

    def pending(self) -> EventQuerySet:
        return self.filter(status="pending")

    def claimed_rows(self) -> EventQuerySet:
        """Rows that a batch has claimed, whether or not it was sent meanwhile."""
        return self.filter(status__stored="claimed")

    def in_batches(self, batches: models.QuerySet) -> EventQuerySet:
        return self.claimed_rows().filter(batch_id__in=batches.values("pk"))

    def orphaned(self, batches: models.QuerySet, since: Any) -> EventQuerySet:
        """Rows of the months from `since` on whose batch is not among `batches`: they read as sent."""
        rows = self.claimed_rows().filter(partition_key__gte=since)
        return rows.exclude(Exists(batches.filter(pk=OuterRef("batch_id"))))

    def counted(self) -> Counter[tuple[str, str]]:
        """`{(stream, status): rows}` without a look at each row's batch: a claimed row counts as sent."""
        counts: Counter[tuple[str, str]] = Counter()
        rows = self.values_list("stream", "status__stored").annotate(number=Count("id")).order_by()
        for stream, status, number in rows:
            counts[stream, "sent" if status == "claimed" else status] += number
        return counts

    def of_stream(self, stream: str) -> EventQuerySet:
        return self.filter(stream=stream)

    def at(self, stream: str, locations: Iterable[str]) -> EventQuerySet:
        return self.filter(stream=stream, location_id__any=frozenset(locations))

    def in_months(self, months: Iterable[int]) -> EventQuerySet:
        """Read these partitions alone."""
        return self.filter(partition_key__in=list(months))

    def per_location(self) -> dict[str, int]:
        return dict(self.values_list("location_id").annotate(number=Count("id")).order_by())

    def oldest_first(self) -> EventQuerySet:
        return self.order_by("id")

    def lock_free(self) -> EventQuerySet:
        """Lock for this transaction, and skip rows that an ingester is changing right now.

        Ingesters lock events and then buckets, flushers buckets and then events. They do not deadlock only
        because a flusher never waits for a lock.
        """
        return self.select_for_update(skip_locked=True)

    def discard_claimed(self, batch: Any, now: datetime) -> int:
        """Discard the orders of a batch that is not sent; returns how many."""
        rows = self.in_months(batch.months).filter(id__in=batch.event_ids, batch_id=batch.pk, status="claimed")
        return rows.update(status="discarded", updated_at=now)

    def discarded_with(self, batch: Any) -> EventQuerySet:
        """The orders that were discarded with this batch, and were not opened again."""
        return self.in_months(batch.months).filter(id__in=batch.event_ids, batch_id=batch.pk, status="discarded")


class BucketQuerySet(models.QuerySet):
    """One row per location; what is due is found through (stream, due_at), however much is pending."""

    def of_stream(self, stream: str) -> BucketQuerySet:
        return self.filter(stream=stream)

    def waiting(self) -> BucketQuerySet:
        """Not empty and not held, the earliest first."""
        return self.filter(due_at__isnull=False).order_by("due_at")

    def due(self, now: datetime) -> BucketQuerySet:
        return self.filter(due_at__lte=now).order_by("due_at")

    def lock_free(self) -> BucketQuerySet:
        return self.select_for_update(skip_locked=True)

    def filled(self) -> BucketQuerySet:
        return self.filter(open_count__gt=0)

    def held(self) -> BucketQuerySet:
        return self.filter(held=True)

    def running(self) -> BucketQuerySet:
        return self.filter(held=False)

    def flushable(self) -> BucketQuerySet:
        """Filled, running, and not asked for already."""
        return self.filled().running().exclude(urged="manual")

    def urge(self, now: datetime) -> int:
        """Make those that are flushable due at once; returns how many."""
        return self.flushable().update(urged="manual", due_at=now)

    def hold(self) -> int:
        return self.running().update(held=True, due_at=None)

    def release(self, now: datetime) -> int:
        """Let held ones run, the filled ones due at once; returns how many.

        One statement: an order that arrives between two would leave its bucket neither held nor due.
        """
        due = Case(When(open_count__gt=0, then=Value(now, DateTimeField())), default=None)
        return self.held().update(due_at=due, held=False)

    def empty(self) -> int:
        return self.update(**EMPTY)

    def shrink(self, number: int) -> None:
        """Count so many orders less; the first statement locks what the second reads."""
        self.update(open_count=F("open_count") - number)
        self.filter(open_count__lte=0).empty()

    def next_sequence(self) -> int:
        """Take the number of the next batch of this one bucket, whose row is locked by it."""
        self.update(sequence=F("sequence") + 1)
        return int(self.values_list("sequence", flat=True).get())


class BatchQuerySet(ClaimQuerySet):
    """Batches; the unsent ones are few."""

    def claimed(self) -> BatchQuerySet:
        return self.filter(status="claimed")

    def parked(self) -> BatchQuerySet:
        return self.filter(status="parked")

    def missing(self) -> BatchQuerySet:
        """Supplements that were discarded, and whose quantities no later one has taken in."""
        return self.filter(status="discarded", supplement_of__isnull=False, made_up_at=None)

    def unsent(self) -> BatchQuerySet:
        return self.filter(status__in=("claimed", "parked"))

    def sent(self) -> BatchQuerySet:
        return self.filter(status="sent")

    def of_streams(self, streams: Iterable[str]) -> BatchQuerySet:
        return self.filter(stream__in=list(streams))

    def at(self, locations: Iterable[str]) -> BatchQuerySet:
        return self.filter(location_id__any=frozenset(locations))

    def put(self, status: str, **changes: Any) -> int:
        """Give them this status and take back their leases; returns how many."""
        return self.update(status=status, lease_token=None, lease_until=None, **changes)

    def oldest_first(self) -> BatchQuerySet:
        return self.order_by("claimed_at", "sequence")
