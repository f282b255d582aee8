"""Tables of dead letters and burial keys."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Any, Self

from django.db import models
from django.db.models.base import ModelState

from config.fields import IdentifierField
from config.uuid7 import uuid7
from outbox.groups.models import FailureGroup
from outbox.letters.queries import DeadLetterQuerySet, PayloadRevisionQuerySet


class DeadLetter(models.Model):
    """A record that failed for good: its raw bytes, its position, the reason, and what was done about it."""

    class Status(models.TextChoices):
        OPEN = "open"
        REQUEUED = "requeued"
        RESOLVED = "resolved"
        FAILED_AGAIN = "failed_again"
        DISCARDED = "discarded"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    group = models.ForeignKey(
        FailureGroup, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="letters"
    )
    source = IdentifierField(max_length=100, help_text="The stream or flow it belongs to.")
    step = models.CharField(max_length=50)
    reason = models.CharField(max_length=100)
    error = models.TextField(blank=True)
    error_class = models.CharField(max_length=200, blank=True)
    traceback = models.TextField(blank=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.OPEN)

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
    code = models.CharField(
        max_length=30, blank=True, default="", db_default="", help_text="Why it was discarded, in one word."
    )
    requeued_at = models.DateTimeField(null=True, help_text="When it was last taken back.")
    evidence = models.CharField(
        max_length=1000,
        blank=True,
        default="",
        db_default="",
        help_text="What proves that it had its effect, or had not.",
    )
    evidence_url = models.CharField(max_length=300, blank=True, default="", db_default="")
    carrier = models.UUIDField(null=True, help_text="The message or batch that carries its effect.")
    predecessor = models.UUIDField(null=True, help_text="The letter of the revision before, that failed again.")
    successor = models.UUIDField(null=True, help_text="The letter of the next revision, if it failed again.")

    edit = 0  # of a copy in memory: the number of the revision whose payload it has

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["status", "-id"], name="deadletter_status"),
            models.Index(fields=["group", "status", "-id"], name="deadletter_group"),
            # Instead of the key's own: a page of a group in every state takes its ids from here.
            models.Index(fields=["group", "-id"], name="deadletter_of_group"),
            # A page of one flow, in one state and in all; and what a batch over a source pins.
            models.Index(fields=["source", "status", "-id"], name="deadletter_source"),
            models.Index(fields=["source", "-id"], name="deadletter_of_source"),
            models.Index(fields=["business_key"], name="deadletter_business_key"),
            models.Index(fields=["correlation_id"], name="deadletter_correlation"),
            models.Index(fields=["topic", "partition", "offset"], name="deadletter_position"),
        ]
        permissions = [
            ("view_payload", "Can see payloads"),
            ("requeue_deadletter", "Can requeue dead letters"),
            ("resolve_deadletter", "Can resolve dead letters"),
            ("discard_deadletter", "Can discard dead letters"),
            ("restore_deadletter", "Can restore discarded dead letters"),
            ("edit_deadletter", "Can edit and requeue dead letters"),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.business_key or self.position}"

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **newer: Any) -> Self:
        """As Django 5.2 does it, without asking each of its fields whether it was loaded: replays read letters by thousands."""
        if newer:  # what a later Django hands over it knows best
            return super().from_db(db, field_names, values, **newer)
        letter = cls.__new__(cls)
        letter.__dict__.update(zip(field_names, values, strict=True))
        letter._state = ModelState()
        letter._state.adding, letter._state.db = False, db
        return letter

    @property
    def position(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}" if self.has_position else str(self.id)

    @property
    def has_position(self) -> bool:
        """Whether it lies in a topic: a batch on its way there, and a message, do not."""
        return bool(self.topic) and self.partition is not None and self.partition >= 0

    @property
    def is_excerpt(self) -> bool:
        """Whether only a part of the record is kept."""
        return self.payload_size is not None

    def copy_with(self, payload: bytes, edit: int) -> DeadLetter:
        """The letter with the payload of its edited copy number `edit`; only in memory, never saved."""
        found = copy(self)
        found.payload, found.edit = payload, edit
        return found


class PayloadRevision(models.Model):
    """An edited copy that was requeued in place of a letter, whose own bytes never change. Written once."""

    letter = models.UUIDField()
    number = models.IntegerField(help_text="Of this letter: 1, 2, 3, …")
    payload = models.BinaryField(help_text="The bytes that were taken back.")
    digest_before = models.CharField(max_length=32, help_text="Of the letter's own payload.")
    digest_after = models.CharField(max_length=32)
    editor = models.CharField(max_length=150, help_text="Kept when the account is gone.")
    editor_number = models.IntegerField(null=True, help_text="The account's primary key.")
    reason = models.TextField()
    created_at = models.DateTimeField(help_text="The letter's requeued_at, as long as this is what was taken back.")

    objects = PayloadRevisionQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["letter", "number"], name="payloadrevision_number")]
        default_permissions = ()  # it is seen on the page of its letter

    def __str__(self) -> str:
        return f"Edit {self.number} of letter {self.letter}"


class ProofRound(models.Model):
    """What the last round over the requeued letters of a source found: how many wait too long for their effect."""

    source = IdentifierField(max_length=100, primary_key=True)
    overdue = models.BigIntegerField(default=0)
    oldest_at = models.DateTimeField(null=True, help_text="When the first of those that wait was taken back.")
    looked_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.source}: {self.overdue} overdue"


class BurialKey(models.Model):
    """One letter per record, step and revision, however often the record is delivered.

    Unpartitioned, because the letters are partitioned by time and a redelivery may come in another month
    (the separate deduplication table of seed 3).
    """

    group = IdentifierField(max_length=100)
    topic_id = IdentifierField(max_length=36)
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
