"""Orders that wait for their batch, buckets, batches: the tables and their queries."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Count, DateTimeField, Exists, F, OuterRef, Q, Transform, Value, When
from django.db.models.expressions import Col
from django.db.models.sql.compiler import SQLCompiler

from config.fields import IdentifierField, IsStatus, StatusField
from config.telemetry.tracing import in_trace, trace_id_of
from outbox.bookkeeping.leases import Claimable, ClaimQuerySet

# -- The status of an order --------------------------------------------------------------------------------
# Without an alias: under LOCK TABLES, where MySQL drops a month, there are none.
UNSENT = "SELECT buffer_batch.batch_id FROM buffer_batch WHERE buffer_batch.status IN ('claimed', 'parked')"


class EventStatusField(StatusField):
    """Stored `pending`, `claimed`, `discarded` and, after a restore, `sent`; a `claimed` order whose batch no longer
    waits is read as `sent`, in `filter`, `values` and everywhere else of the ORM.

    To write "sent" into each order of a batch was half of what a flush asked of the database (docs/adr/0015). SQL of
    our own sees what is stored; its guards ask for `pending` only, which is stored and read alike.
    """

    AS_STORED = frozenset({"pending", "discarded"})  # no batch changes how they are read

    def get_col(self, alias: str, output_field: models.Field | None = None) -> Col:
        return StatusCol(alias, self, output_field)


class StatusCol(Col):
    """The column, and a look at the batch of a claimed order, by its key.

    `batch_id IN (…)` would be cheaper for a whole table, but with some thousand unsent batches PostgreSQL then reads
    even one row with parallel workers, which takes 50 ms instead of 2.
    """

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        status, params = super().as_sql(compiler, connection)
        return (f"CASE WHEN {status} = 'claimed' AND NOT {self._waits(compiler)} THEN 'sent' ELSE {status} END", params)

    def stored(self) -> Col:
        return Col(self.alias, self.target, self.output_field)

    def _waits(self, compiler: SQLCompiler) -> str:
        """Whether its batch is unsent; one that was deleted had been sent or discarded."""
        names = [self.alias, "batch_id"] if self.alias else ["batch_id"]
        mine = ".".join(map(compiler.quote_name_unless_alias, names))
        return f"EXISTS ({UNSENT} AND buffer_batch.batch_id = {mine})"


@EventStatusField.register_lookup
class IsEventStatus(IsStatus):
    """`status="pending"` without a look at any batch, so that the indexes on the column serve it."""

    def process_lhs(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, lhs: Any = None) -> Any:
        plain = isinstance(self.lhs, StatusCol) and self.rhs in EventStatusField.AS_STORED
        return super().process_lhs(compiler, connection, self.lhs.stored() if plain else lhs)


@EventStatusField.register_lookup
class Stored(Transform):
    """`status__stored="claimed"`: what the row says, whatever became of its batch."""

    lookup_name = "stored"
    output_field = IdentifierField()

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, *_: object, **__: object
    ) -> tuple[str, Any]:
        column: Any = self.lhs
        return compiler.compile(column.stored())


# -- Orders ------------------------------------------------------------------------------------------------
NO_BATCH = uuid.UUID(int=0)
# As text, because Django cannot quote a UUID for MariaDB's own type.
NO_BATCH_TEXT = models.Value(NO_BATCH.hex, output_field=models.CharField())


class EventQuerySet(models.QuerySet["BufferedEvent"]):
    """Rows of the event buffer; big, so every query names an index prefix."""

    def pending(self) -> EventQuerySet:
        return self.filter(status="pending")

    def claimed_rows(self) -> EventQuerySet:
        """Rows that a batch has claimed, whether or not it was sent meanwhile."""
        return self.filter(status__stored="claimed")

    def in_batches(self, batches: models.QuerySet) -> EventQuerySet:
        return self.claimed_rows().filter(batch_id__in=batches.values("pk"))

    def orphaned(self, batches: models.QuerySet, since: object) -> EventQuerySet:
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

    def of_topic(self, topic_id: str) -> EventQuerySet:
        """Whose places are in this topic, or in one that was read before brokers had ids."""
        return self.filter(topic_id__in=["", topic_id]) if topic_id else self

    def at(self, stream: str, locations: Iterable[str]) -> EventQuerySet:
        return self.filter(stream=stream, location_id__any=frozenset(locations))

    def in_months(self, months: Iterable[int]) -> EventQuerySet:
        """Read these partitions alone."""
        return self.filter(partition_key__in=list(months))

    def per_location(self) -> dict[str, int]:
        return dict(self.values_list("location_id").annotate(number=Count("id")).order_by())

    def oldest_first(self) -> EventQuerySet:
        return self.order_by("id")

    def of_trace(self, trace_id: str) -> EventQuerySet:
        """Those whose record belongs to this trace; of what is no trace id, none."""
        return self.filter(in_trace(trace_id))

    def lock_free(self) -> EventQuerySet:
        """Lock for this transaction, and skip rows that an ingester is changing right now.

        Ingesters lock events and then buckets, flushers buckets and then events. They do not deadlock only
        because a flusher never waits for a lock.
        """
        return self.select_for_update(skip_locked=True)

    def discard_claimed(self, batch: Batch, now: datetime) -> int:
        """Discard the orders of a batch that is not sent; returns how many."""
        rows = self.in_months(batch.months).filter(id__in=batch.event_ids, batch_id=batch.pk, status="claimed")
        return rows.update(status="discarded", updated_at=now)

    def discarded_with(self, batch: Batch) -> EventQuerySet:
        """The orders that were discarded with this batch, and were not opened again."""
        return self.in_months(batch.months).filter(id__in=batch.event_ids, batch_id=batch.pk, status="discarded")


class BufferedEvent(models.Model):
    """One order of one location in one stream: at most one row, whatever Kafka delivers.

    The database partitions this table by `partition_key` (the UTC month of `ordered_at`); its SQL primary
    key is (id, partition_key).
    """

    class Status(models.TextChoices):
        PENDING = "pending"
        CLAIMED = "claimed"
        SENT = "sent"
        DISCARDED = "discarded"

    partition_key = models.IntegerField(help_text="UTC month of the order, yyyymm.")
    stream = IdentifierField(max_length=64)
    location_id = IdentifierField()
    order_id = IdentifierField()
    payload = models.TextField(help_text="The newest accepted message, as received.")
    payload_hash = models.CharField(max_length=32)
    status = EventStatusField(
        max_length=10, choices=Status, default=Status.PENDING, flags={Status.PENDING: "is_pending"}
    )
    # Never null: a claim that makes a row longer makes InnoDB move it within its page (docs/adr/0018).
    batch_id = models.UUIDField(default=NO_BATCH, db_default=NO_BATCH_TEXT, help_text="Nil as long as it waits.")
    revision = models.IntegerField(default=0, help_text="How often a newer message replaced the payload.")
    token = models.BigIntegerField(default=0, help_text="The ingest transaction that last changed this row.")

    topic_id = models.CharField(max_length=36, default="")
    source_partition = models.IntegerField()
    source_offset = models.BigIntegerField()
    source_timestamp = models.BigIntegerField(help_text="Of the record, in milliseconds.")
    # A late record leaves its position here, so that its own redelivery is not a second letter.
    seen_partition = models.IntegerField(null=True)
    seen_offset = models.BigIntegerField(null=True)
    seen_timestamp = models.BigIntegerField(null=True)
    seen_topic_id = models.CharField(max_length=36, default="")
    seen_hash = models.CharField(max_length=32, default="")

    traceparent = IdentifierField(max_length=55, null=True, help_text="Of its record, if that had one.")

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = EventQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                # The order before the location, so that the same key finds an order by its id.
                fields=["partition_key", "stream", "order_id", "location_id"],
                name="bufferedevent_order",
            )
        ]
        indexes = [
            # The claim's own order; partial where the database can, so that sent rows cost nothing.
            models.Index(
                fields=["stream", "location_id", "id"], name="bufferedevent_open", condition=Q(status="pending")
            ),
            # What the search finds by a trace id; rows without one cost nothing where indexes can be partial.
            models.Index(fields=["traceparent"], name="bufferedevent_trace", condition=Q(traceparent__isnull=False)),
        ]
        permissions = [("withdraw_bufferedevent", "Can withdraw an order before it is claimed")]

    def __str__(self) -> str:
        return f"{self.order_id} at {self.location_id}"

    @property
    def trace_id(self) -> str:
        return trace_id_of(self.traceparent or "")

    @property
    def state(self) -> str:
        """Its status; `withdrawn` when a person took it out before any batch had it."""
        out = self.status == self.Status.DISCARDED and self.batch_id == NO_BATCH
        return "withdrawn" if out else str(self.status)


# -- Buckets -----------------------------------------------------------------------------------------------
# What the row of a bucket says while nothing waits there.
EMPTY = {"open_count": 0, "urged": "", "due_at": None, "first_arrival": None, "cap_at": None}


class BucketQuerySet(models.QuerySet["Bucket"]):
    """One row per location; what is due is found through (stream, due_at), however much is pending."""

    def of_stream(self, stream: str) -> BucketQuerySet:
        return self.filter(stream=stream)

    def waiting(self) -> BucketQuerySet:
        """Not empty and not held, the earliest first."""
        return self.filter(due_at__isnull=False).order_by("due_at")

    def due(self, now: datetime | None) -> BucketQuerySet:
        """Due at `now`, the earliest first; None: all that wait."""
        return self.waiting() if now is None else self.filter(due_at__lte=now).order_by("due_at")

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


class Bucket(models.Model):
    """A location of a stream: how much waits there, since when, and when it is due. Kept for ever."""

    stream = IdentifierField(max_length=64)
    location_id = IdentifierField()
    open_count = models.IntegerField(default=0)
    sequence = models.BigIntegerField(default=0, help_text="Batches cut so far.")
    first_arrival = models.DateTimeField(null=True, help_text="Of the oldest open event.")
    last_arrival = models.DateTimeField(null=True)
    idle_at = models.DateTimeField(null=True)
    cap_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, help_text="When to look at it next; null when empty or held.")
    topic = IdentifierField(max_length=249, default="")
    source_partition = models.IntegerField(null=True, help_text="Whose silence counts as this bucket's silence.")
    held = models.BooleanField(default=False, help_text="Nothing is cut from it until it is released.")
    urged = models.CharField(
        max_length=10, default="", blank=True, help_text="Why it is due at once: leftover, manual, or empty."
    )

    objects = BucketQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["stream", "location_id"], name="bucket_location")]
        indexes = [models.Index(fields=["stream", "due_at"], name="bucket_due")]
        permissions = [("flush_bucket", "Can flush a bucket now"), ("hold_bucket", "Can hold a bucket")]

    def __str__(self) -> str:
        return self.location_id


# -- Batches -----------------------------------------------------------------------------------------------
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

    def put(self, status: str, **changes: object) -> int:
        """Give them this status and take back their leases; returns how many."""
        return self.update(status=status, lease_token=None, lease_until=None, **changes)

    def oldest_first(self) -> BatchQuerySet:
        return self.order_by("claimed_at", "sequence")


class Batch(Claimable):
    """What is sent to a warehouse: the message is frozen when the batch is cut and never changes again."""

    class Status(models.TextChoices):
        CLAIMED = "claimed"
        SENT = "sent"
        PARKED = "parked", "dead letter"
        DISCARDED = "discarded"

    batch_id = models.UUIDField(primary_key=True)
    stream = IdentifierField(max_length=64)
    location_id = IdentifierField()
    sequence = models.BigIntegerField()
    status = IdentifierField(max_length=10, choices=Status, default=Status.CLAIMED)
    reason = models.CharField(max_length=20, help_text="The rule that made it due.")
    supplement_of = models.UUIDField(null=True, blank=True)
    partition_key = models.IntegerField(help_text="The newest month among its orders: it is kept as long.")
    event_count = models.IntegerField()
    payload = models.TextField(help_text="The message value, byte for byte as published.")
    headers = models.JSONField(default=dict)
    # Empty in a batch that was cut before there was the column.
    content_hash = models.CharField(
        max_length=32, default="", db_default="", help_text="Of payload and headers, taken when they were frozen."
    )
    months = models.JSONField(default=list, help_text="Partition keys of its orders.")
    event_ids = models.JSONField(default=list)
    attempts = models.IntegerField(default=0)
    error = models.TextField(blank=True)
    # For people, without the topic's id: what proves a batch is the broker's answer, and later the bytes at the place,
    # which hold its own id. Another topic of the name has none that are the same.
    output_partition = models.IntegerField(null=True)
    output_offset = models.BigIntegerField(null=True)
    claimed_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    made_up_at = models.DateTimeField(
        null=True, help_text="When a later supplement of the order took in what this discarded one would have said."
    )

    objects = BatchQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["stream", "location_id", "sequence"], name="batch_sequence"),
            models.Index(fields=["status", "claimed_at"], name="batch_unsent"),
            models.Index(fields=["-claimed_at"], name="batch_recent"),
            models.Index(fields=["partition_key"], name="batch_month"),
        ]
        verbose_name_plural = "batches"

    def __str__(self) -> str:
        return str(self.batch_id)
