"""Tables of dead letters, failure groups and burial keys."""

from __future__ import annotations

from django.db import models

from config.admin import humanize
from config.fields import IdentifierField
from config.uuid7 import uuid7
from outbox.letters.queries import DeadLetterQuerySet, FailureGroupQuerySet

# Words of reasons that are no words.
ACRONYMS = {"json": "JSON", "utf8": "UTF-8", "nul": "NUL", "id": "id"}


def cause_in_words(reason: str) -> str:
    """`Invalid JSON` for `invalid_json`."""
    words = [ACRONYMS.get(word, word) for word in reason.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:]


class FailureGroup(models.Model):
    """Dead letters with one cause, counted as they arrive."""

    fingerprint = models.CharField(max_length=32, unique=True)
    source = IdentifierField(max_length=100)
    step = models.CharField(max_length=50)
    reason = models.CharField(max_length=100)
    title = models.CharField(max_length=300)
    open_count = models.BigIntegerField(default=0)
    total_count = models.BigIntegerField(default=0)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    objects = FailureGroupQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["-last_seen"], name="failuregroup_recent")]

    def __str__(self) -> str:
        return humanize.quoted(self.title)


class DeadLetter(models.Model):
    """A record that failed for good: its raw bytes, its position, the reason, and what was done about it."""

    class Status(models.TextChoices):
        OPEN = "open"
        REQUEUED = "requeued"
        RESOLVED = "resolved"
        DISCARDED = "discarded"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    group = models.ForeignKey(FailureGroup, on_delete=models.DO_NOTHING, db_constraint=False, related_name="letters")
    source = IdentifierField(max_length=100, help_text="The stream or flow it belongs to.")
    step = models.CharField(max_length=50)
    reason = models.CharField(max_length=100)
    error = models.TextField(blank=True)
    error_class = models.CharField(max_length=200, blank=True)
    traceback = models.TextField(blank=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN)

    consumer_group = IdentifierField(max_length=100, blank=True)
    topic = IdentifierField(max_length=249, blank=True)
    topic_id = models.CharField(max_length=36, blank=True)
    partition = models.IntegerField(null=True)
    offset = models.BigIntegerField(null=True)
    timestamp = models.BigIntegerField(null=True, help_text="Of the record, in milliseconds.")
    revision = models.IntegerField(default=0, help_text="0 as received; each replay that fails again adds one.")
    key = models.BinaryField(null=True)
    payload = models.BinaryField(null=True, help_text="Exactly the bytes received; null for a tombstone.")
    payload_size = models.BigIntegerField(
        null=True, help_text="Bytes of the whole payload; only where the record was too large to be kept whole."
    )
    payload_sha256 = models.CharField(max_length=64, blank=True, help_text="Of the whole payload; as payload_size.")
    headers = models.JSONField(default=list)
    business_key = IdentifierField(blank=True, help_text="The order, batch or customer it is about.")
    correlation_id = models.CharField(max_length=100, blank=True)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    note = models.TextField(blank=True, help_text="What the last lever did.")

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["status", "-id"], name="deadletter_status"),
            models.Index(fields=["group", "status", "-id"], name="deadletter_group"),
            models.Index(fields=["business_key"], name="deadletter_business_key"),
            models.Index(fields=["topic", "partition", "offset"], name="deadletter_position"),
        ]
        permissions = [
            ("view_payload", "Can see payloads"),
            ("requeue_deadletter", "Can requeue dead letters"),
            ("resolve_deadletter", "Can resolve dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.business_key or self.position}"

    @property
    def position(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}" if self.topic else str(self.id)

    @property
    def is_excerpt(self) -> bool:
        """Whether only a part of the record is kept."""
        return self.payload_size is not None


class BurialKey(models.Model):
    """One letter per record, step and revision, however often the record is delivered.

    Unpartitioned, because the letters are partitioned by time and a redelivery may come in another month
    (the separate deduplication table of seed 3).
    """

    group = IdentifierField(max_length=100)
    topic_id = models.CharField(max_length=36)
    topic = IdentifierField(max_length=249)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    step = IdentifierField(max_length=50)
    revision = models.IntegerField(default=0)
    payload_hash = models.CharField(max_length=32)
    token = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["group", "topic_id", "topic", "partition", "offset", "step", "revision"],
                name="burialkey_record",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset} {self.step} r{self.revision}"
