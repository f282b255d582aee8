"""Rows that are held, counted, parked and replayed: what every flow shares."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from config.fields import IdentifierField, uuid7
from outbox.letters import DeadLetterQuerySet, FailureGroupQuerySet


class Watermark(models.Model):
    """How far a consumer group has come in a partition, written in the transaction of the data itself.

    A restored backup therefore remembers less than Kafka does, and its consumer reads the gap again.
    """

    group = IdentifierField(max_length=100)
    topic = IdentifierField(max_length=249)
    partition = models.IntegerField()
    topic_id = models.CharField(
        max_length=36, default="", help_text="Tells a recreated topic from its namesake."
    )
    next_offset = models.BigIntegerField()
    end_offset = models.BigIntegerField(default=0)
    caught_up_at = models.DateTimeField(
        null=True, help_text="The last time everything in the log had been read."
    )
    alarm = models.CharField(
        max_length=500, default="", help_text="Why this partition is stopped; empty: it runs."
    )
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["group", "topic", "partition"], name="watermark_position"),
        ]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition} at {self.next_offset}"


class FlowCounter(models.Model):
    """A durable count of what happened, written in the transaction in which it happened."""

    flow = IdentifierField(max_length=100)
    scope = IdentifierField(max_length=50, help_text="Source partition, or empty.")
    name = IdentifierField(max_length=50)
    value = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "scope", "name"], name="flowcounter_key")]

    def __str__(self) -> str:
        return f"{self.flow}[{self.scope}].{self.name} = {self.value}"


class FlowMinute(models.Model):
    """The same counts per minute: rates and sparklines without a second store. Kept for a day."""

    flow = IdentifierField(max_length=100)
    name = IdentifierField(max_length=50)
    minute = models.IntegerField(help_text="Minutes since 1970.")
    value = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "name", "minute"], name="flowminute_key")]
        indexes = [models.Index(fields=["minute"], name="flowminute_minute")]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} in minute {self.minute}: {self.value}"


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
        return self.title


class DeadLetter(models.Model):
    """A record that failed for good: its raw bytes, where it came from, why, and what was done about it."""

    class Status(models.TextChoices):
        OPEN = "open"
        REQUEUED = "requeued"
        RESOLVED = "resolved"
        DISCARDED = "discarded"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    group = models.ForeignKey(
        FailureGroup, on_delete=models.DO_NOTHING, db_constraint=False, related_name="letters"
    )
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
    revision = models.IntegerField(
        default=0, help_text="0 as received; each replay that fails again adds one."
    )
    key = models.BinaryField(null=True)
    payload = models.BinaryField(null=True, help_text="Exactly the bytes received; null for a tombstone.")
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


class OperatorAction(models.Model):
    """Who did what to which rows, and why: append-only, written in the transaction of the deed."""

    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    actor_name = models.CharField(max_length=150, help_text="Kept when the user is gone; commands say so.")
    verb = models.CharField(max_length=50)
    subject = models.CharField(max_length=300)
    url = models.CharField(max_length=300, blank=True)
    reason = models.TextField()
    result = models.CharField(max_length=200)
    rows = models.IntegerField(default=1)
    detail = models.JSONField(default=dict)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["-created_at"], name="operatoraction_recent")]

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.verb} {self.subject}"


class JobLease(models.Model):
    """Which process runs a scheduled job now, so that two beats are one."""

    job = IdentifierField(max_length=100, primary_key=True)
    token = models.UUIDField(null=True)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job} until {self.until:%F %T}"


from outbox.messages import ChannelState, DeliveryAttempt, IdempotencyKey, OutboxMessage  # noqa: E402
from outbox.replays import TopicReplay  # noqa: E402

__all__ = [
    "BurialKey", "ChannelState", "DeadLetter", "DeliveryAttempt", "FailureGroup", "FlowCounter", "FlowMinute",
    "IdempotencyKey", "JobLease", "OperatorAction", "OutboxMessage",
    "TopicReplay", "Watermark",
]  # fmt: skip
