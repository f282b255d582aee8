"""Tables of dead letters, edited copies and burial keys, with their queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.base import ModelState
from django.db.models.functions import Length
from django.utils.functional import cached_property

from config.fields import IdentifierField, smallest_uuid7, uuid7
from config.flows import called, letters_of
from config.letters import Refusal
from outbox.groups.models import FailureGroup

# -- Queries about dead letters ------------------------------------------------------------------------------
LISTED = 50  # letters of a query: each has up to four megabytes
MOST_BYTES = 32 * 1024 * 1024  # of payloads that are in memory at once
# What no flow asks for when it judges a letter: what people read, and what levers have written.
NOT_JUDGED = (
    "group", "error", "error_class", "traceback", "consumer_group", "payload_sha256",
    "created_at", "updated_at", "requeued_at", "note", "code", "evidence", "evidence_url", "predecessor", "successor",
)  # fmt: skip


def fitting(sizes: Iterable[int], portions: int = 1) -> int:
    """How many payloads of these sizes, in bytes, may be in memory at once: the first ones, and at least one.

    `portions`: as many as these are there at once.
    """
    number = total = 0
    for size in sizes:
        total += size
        if number and total > MOST_BYTES // portions:
            break
        number += 1
    return number


def order_of_letter(row: Any) -> str:
    """The order that a letter, or an item of a replay batch, is about, as its flow says; empty for another one."""
    try:
        return letters_of(row.source, row.step).order_in(row.business_key, getattr(row, "topic", ""))
    except Refusal:  # of a flow that is not there any more
        return ""


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    """Dead letters."""

    def open(self) -> DeadLetterQuerySet:
        return self.filter(status="open")

    def requeued(self) -> DeadLetterQuerySet:
        """Taken back, without proof of their effect."""
        return self.filter(status="requeued")

    def unresolved(self) -> DeadLetterQuerySet:
        """What may still have its effect: open, on its way, or discarded, which a person can take back."""
        return self.filter(status__in=["open", "requeued", "discarded"])

    def of_source(self, source: str) -> DeadLetterQuerySet:
        return self.filter(source=source)

    def of_group(self, group_id: int) -> DeadLetterQuerySet:
        return self.filter(group_id=group_id)

    def one_by_one(self) -> Iterator[DeadLetter]:
        """By rising id, a short query a chunk: the driver of MariaDB and MySQL holds the whole result of a query."""
        letters = list(self.order_by("id")[:LISTED])
        while letters:
            yield from letters
            letters = list(self.filter(pk__gt=letters[-1].pk).order_by("id")[:LISTED])

    def to_judge(self) -> DeadLetterQuerySet:
        """Only the columns that judgements need: making objects of the others takes as long as judging them."""
        return self.defer(*NOT_JUDGED)

    def sizes(self) -> models.QuerySet:
        """Bytes of their payloads."""
        return self.annotate(size=Length("payload")).values("size")

    def portions(self, ids: Sequence[UUID]) -> Iterator[list[UUID]]:
        """These letters in their order, as many at a time as may be in memory; at least one."""
        sizes = dict(self.filter(pk__in=ids).sizes().values_list("pk", "size"))
        left = list(ids)
        while left:
            number = fitting(sizes.get(pk) or 0 for pk in left)
            yield left[:number]
            left = left[number:]

    def newest_first(self) -> DeadLetterQuerySet:
        return self.order_by("-id")

    def ahead_of(self, now: datetime) -> UUID | None:
        """The highest id of now or later, by the database's clock: of this transaction, or from before the clock went back.

        Not what is more than a day ahead: nothing may follow that one.
        """
        first, end = (smallest_uuid7(int(moment.timestamp() * 1000)) for moment in (now, now + timedelta(days=1)))
        return self.filter(pk__gte=first, pk__lt=end).order_by("-pk").values_list("pk", flat=True).first()


class PayloadRevisionQuerySet(models.QuerySet["PayloadRevision"]):
    """Edited copies."""

    def of_letter(self, letter_id: UUID) -> PayloadRevisionQuerySet:
        return self.filter(letter=letter_id).order_by("number")

    def last_number(self, letter_id: UUID) -> int:
        """How often the letter was edited."""
        return self.of_letter(letter_id).values_list("number", flat=True).last() or 0

    def last_numbers(self, letter_ids: Collection[UUID]) -> dict[UUID, int]:
        """The same of many letters; one that was never edited is not in it."""
        rows = self.filter(letter__in=letter_ids).order_by().values_list("letter")
        return dict(rows.annotate(last=models.Max("number")))

    def in_force(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """The same letters; one that was last taken back as an edited copy has the payload of that."""
        letters = list(letters)
        rows = self.filter(letter__in=[letter.pk for letter in letters])
        # A letter that was restored, and taken back as it is, is no copy any more.
        copies: dict[tuple[UUID, datetime | None], PayloadRevision] = {
            (row.letter, row.created_at): row for row in rows
        }
        pairs = [(letter, copies.get((letter.pk, letter.requeued_at))) for letter in letters]
        return [letter.copy_with(bytes(row.payload), row.number) if row else letter for letter, row in pairs]


# -- Tables of dead letters and burial keys ------------------------------------------------------------------
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
    trace_id = IdentifierField(max_length=32, null=True, help_text="Of its record, if that had one.")

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
            models.Index(fields=["trace_id"], name="deadletter_trace", condition=Q(trace_id__isnull=False)),
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
        return f"{self.reason} {self.about}"

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[object], **newer: Any) -> Self:
        """As Django 5.2 does it, without asking each of its fields whether it was loaded: replays read letters by thousands."""
        if newer:  # what a later Django hands over it knows best
            return super().from_db(db, field_names, values, **newer)
        letter = cls.__new__(cls)
        letter.__dict__.update(zip(field_names, values, strict=True))
        letter._state = ModelState()
        letter._state.adding, letter._state.db = False, db
        return letter

    @property
    def about(self) -> str:
        """The order, batch or customer as people call it; its position where no key is known."""
        return called(self.business_key) if self.business_key else self.position

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

    @property
    def json_payload(self) -> bytes:
        """Its payload as JSON where its topic is written in a format and it can be opened; else as it is."""
        return self.opened[0] or bytes(self.payload or b"")

    @cached_property
    def opened(self) -> tuple[bytes, str]:
        """The JSON of a payload that is written in a format, and the format; empty for JSON, and for what cannot be opened."""
        try:
            return (b"", "") if self.edit or not self.payload else letters_of(self.source, self.step).opened(self)
        except Refusal:  # of a flow that is not there any more
            return b"", ""

    def copy_with(self, payload: bytes, edit: int) -> DeadLetter:
        """The letter with the payload of its edited copy number `edit`; only in memory, never saved."""
        twin = copy(self)
        twin.payload, twin.edit = payload, edit
        twin.__dict__.pop("opened", None)
        return twin


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
            )
        ]

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset} {self.step} r{self.revision}"
