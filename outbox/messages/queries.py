"""Queries about outbox messages and their attempts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db import models
from django.db.models import Q

from config.uuid7 import smallest_uuid7, uuid7_milliseconds
from outbox.bookkeeping.leases import ClaimQuerySet

# As the partial indexes of OutboxMessage say it.
UNFINISHED = ("pending", "processing", "uncertain")
NOT_SENT = ("processing", "uncertain", "dead_lettered", "cancelled", "expired")
DAY_MS = 86_400_000


def tomorrow() -> uuid.UUID:
    """An id no message has yet, whatever the clocks of hosts differ by."""
    return smallest_uuid7(int(time.time() * 1000) + DAY_MS)


class MessageQuerySet(ClaimQuerySet):
    """Outbox messages. Nearly all are sent, so each query uses an index and, by ids, names the partitions."""

    def in_channel(self, channel: str) -> MessageQuerySet:
        return self.filter(channel=channel)

    def from_id(self, lowest: uuid.UUID, before: uuid.UUID | None = None) -> MessageQuerySet:
        """From id `lowest` on; the partitions before it and those of future days are not read."""
        return self.filter(id__gte=lowest, id__lt=before or tomorrow())

    def among(self, ids: Iterable[uuid.UUID]) -> MessageQuerySet:
        """These messages; their smallest and largest id limit the partitions that are read, also inside a join."""
        wanted = frozenset(ids)
        if not wanted:
            return self.none()
        return self.filter(id__any=wanted, id__gte=min(wanted), id__lte=max(wanted))

    def pending(self) -> MessageQuerySet:
        return self.filter(state="pending")

    def due(self, channel: str, now: datetime) -> MessageQuerySet:
        """Pending messages that may be sent now, in the order of the claim's index."""
        waiting = self.in_channel(channel).pending().filter(available_at__lte=now)
        return waiting.order_by("available_at", "id")

    def older_than(self, moment: datetime) -> MessageQuerySet:
        return self.filter(created_at__lte=moment)

    def expired(self, now: datetime) -> MessageQuerySet:
        return self.filter(expires_at__lte=now)

    def lost(self, now: datetime) -> MessageQuerySet:
        """Messages in processing whose lease ran out."""
        return self.filter(state__oneof=NOT_SENT, state="processing", lease_until__lte=now)

    def uncertain(self) -> MessageQuerySet:
        return self.filter(state__oneof=NOT_SENT, state="uncertain")

    def unfinished(self) -> MessageQuerySet:
        return self.filter(state__oneof=UNFINISHED)

    def blocking(self, channel: str, aggregates: Iterable[str], now: datetime) -> MessageQuerySet:
        """Unfinished messages that later ones of these aggregates wait for.

        Two kinds block nothing: uncertain ones that could not be decided in time, and those that came back from
        a final state, because later ones may have been sent already.
        """
        undecided = Q(state="uncertain", available_at__lte=now)
        theirs = self.in_channel(channel).unfinished().filter(aggregate__any=frozenset(aggregates))
        return theirs.filter(times_revived=0).exclude(undecided)

    def locked(self) -> MessageQuerySet:
        """Locked for this transaction; rows another worker is looking at are skipped."""
        return self.select_for_update(skip_locked=True)


class AttemptQuerySet(models.QuerySet):
    """Delivery attempts."""

    def open(self) -> AttemptQuerySet:
        return self.filter(finished_at__isnull=True)

    def of(self, message_ids: Iterable[uuid.UUID]) -> AttemptQuerySet:
        return self.filter(message_id__any=frozenset(message_ids))

    def since(self, moment: datetime) -> AttemptQuerySet:
        """Prune the partitions before that day."""
        return self.filter(id__gte=smallest_uuid7(int(moment.timestamp() * 1000)))

    def close(self, now: datetime, outcome: str, error: str = "", receipt: str = "") -> int:
        """Write down what became of those that are open."""
        return self.open().update(finished_at=now, outcome=outcome, error=error, receipt=receipt)


def first_unfinished_day(queryset: MessageQuerySet, oldest: uuid.UUID, newest: uuid.UUID) -> uuid.UUID:
    """The start of the first day, between those of two ids, that holds an unfinished message.

    Day by day, because the smallest unfinished id has no index: asked for it, a planner may walk all the sent
    ones. Each day is one look into the (nearly empty) index of unfinished rows.
    """
    first, last = uuid7_milliseconds(oldest) // DAY_MS, uuid7_milliseconds(newest) // DAY_MS
    for day in range(first, last):
        begin, end = smallest_uuid7(day * DAY_MS), smallest_uuid7((day + 1) * DAY_MS)
        if queryset.unfinished().filter(id__gte=begin, id__lt=end).exists():
            return begin
    return smallest_uuid7(last * DAY_MS)
