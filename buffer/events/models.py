"""Orders waiting for their batch, the warehouses they wait at, the batches that were cut."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from buffer.events.queries import BatchQuerySet, BucketQuerySet, EventQuerySet
from buffer.events.status_field import EventStatusField
from config.fields import IdentifierField
from outbox.bookkeeping.leases import Claimable

NO_BATCH = uuid.UUID(int=0)
# As text, because Django cannot quote a UUID for MariaDB's own type.
NO_BATCH_TEXT = models.Value(NO_BATCH.hex, output_field=models.CharField())


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
                fields=["stream", "location_id", "id"],
                name="bufferedevent_open",
                condition=Q(status="pending"),
            )
        ]
        permissions = [("withdraw_bufferedevent", "Can withdraw an order before it is claimed")]

    def __str__(self) -> str:
        return f"{self.order_id} at {self.location_id}"

    @property
    def state(self) -> str:
        """Its status; `withdrawn` when a person took it out before any batch had it."""
        out = self.status == self.Status.DISCARDED and self.batch_id == NO_BATCH
        return "withdrawn" if out else str(self.status)


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
