"""Tables of the transactional outbox: messages, idempotency keys, delivery attempts; with their queries."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db import models
from django.db.models import Q

from config.fields import IdentifierField, smallest_uuid7, uuid7, uuid7_milliseconds
from config.flows import promise_in_words
from config.telemetry.tracing import in_trace, trace_id_of
from outbox.bookkeeping.leases import Claimable, ClaimQuerySet

# -- Queries about outbox messages and their attempts --------------------------------------------------------
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

    def newest_of(self, aggregates: Iterable[str], lowest: uuid.UUID) -> dict[str, uuid.UUID]:
        """By aggregate, its highest id from `lowest` on, whatever became of that message.

        Asked with an id that was made just now, it finds only what hosts whose clocks are ahead have written; not what is
        more than a day ahead, which would lead into partitions that no claim reads yet.
        """
        rows = self.from_id(lowest).filter(aggregate__any=aggregates).order_by("id")
        return dict(rows.values_list("aggregate", "id"))

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

    def of_trace(self, trace_id: str) -> MessageQuerySet:
        """Those that were promised within this trace; of what is no trace id, none."""
        return self.filter(in_trace(trace_id), traceparent__gt="")  # as the partial index says it

    def expired(self, now: datetime) -> MessageQuerySet:
        return self.filter(expires_at__lte=now)

    def lost(self, now: datetime) -> MessageQuerySet:
        """Messages in processing whose lease ran out."""
        return self.filter(state__oneof=NOT_SENT, state="processing", lease_until__lte=now)

    def uncertain(self) -> MessageQuerySet:
        return self.filter(state__oneof=NOT_SENT, state="uncertain")

    def unfinished(self) -> MessageQuerySet:
        return self.filter(state__oneof=UNFINISHED)

    def blocking(self, channel: str, aggregates: frozenset[str], now: datetime) -> MessageQuerySet:
        """Unfinished messages that later ones of these aggregates wait for.

        Two kinds block nothing: uncertain ones that could not be decided in time, and those that came back from
        a final state, because later ones may have been sent already.
        """
        undecided = Q(state="uncertain", available_at__lte=now)
        theirs = self.in_channel(channel).unfinished().filter(aggregate__any=aggregates)
        return theirs.filter(times_revived=0).exclude(undecided)

    def locked(self) -> MessageQuerySet:
        """Locked for this transaction; rows another worker is looking at are skipped."""
        return self.select_for_update(skip_locked=True)


class AttemptQuerySet(models.QuerySet):
    """Delivery attempts."""

    def open(self) -> AttemptQuerySet:
        return self.filter(finished_at__isnull=True)

    def of(self, message_ids: Iterable[uuid.UUID]) -> AttemptQuerySet:
        """Of these messages, however long ago; partitions that end before the oldest of them are not read."""
        wanted = frozenset(message_ids)
        if not wanted:
            return self.none()
        # The clock that made an attempt's id is at most a day behind its message's: nobody claims one of `tomorrow()`.
        eve = smallest_uuid7(max(0, uuid7_milliseconds(min(wanted)) - DAY_MS))
        return self.filter(message_id__any=wanted, id__gte=eve)

    def since(self, moment: datetime) -> AttemptQuerySet:
        """Prune the partitions before that day."""
        return self.filter(id__gte=smallest_uuid7(int(moment.timestamp() * 1000)))

    def newest_first(self) -> AttemptQuerySet:
        """By the database's clock: their ids are made of those of hosts."""
        return self.order_by("-started_at", "-id")

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


# -- Tables of the transactional outbox: messages, idempotency keys, delivery attempts -----------------------
# What may be read of a mail, of a message to Kafka, and of what Debezium says about one, without a reveal.
READABLE = (
    "order_id",
    "event_type",
    "topic",
    "op",
    "id",
    "after.id",
    "after.event_type",
    "payload.op",
    "payload.after.id",
)
NAMED = ("to", "from", "subject", "text", "html", "headers", "key", "value")
# What says what it is about, and where it goes: an edited copy says the same.
LOCKED = ("order_id", "event_type", "topic", "key")
FLOW = "outbox"  # the name of the flow, of its counters and of its dead letters


class OutboxMessage(Claimable):
    """A message to be delivered, written in the transaction of the change it is about (seed 4).

    Partitioned by the day in its UUIDv7 `id`; the id is made after the aggregate is locked, so that within
    one aggregate ids rise in the order of the commits.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        PROCESSING = "processing"
        SENT = "sent"
        UNCERTAIN = "uncertain"
        DEAD_LETTERED = "dead_lettered", "dead letter"
        CANCELLED = "cancelled"
        EXPIRED = "expired"

    releasable = False  # a message may have been sent: outbox/delivery/overdue.py decides

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    channel = IdentifierField(max_length=50, help_text="The handler that delivers it: a key of HANDLERS.")
    event_type = IdentifierField(max_length=100)
    aggregate = IdentifierField(help_text="What it is about; messages of one aggregate leave in order.")
    payload = models.TextField(help_text="JSON, byte for byte what every attempt sends.")
    correlation_id = models.CharField(max_length=100, default="", blank=True)
    traceparent = models.CharField(max_length=55, default="", blank=True)

    state = IdentifierField(max_length=15, choices=State, default=State.PENDING)
    attempts = models.IntegerField(default=0, help_text="Counted at claim; outages are given back.")
    available_at = models.DateTimeField(help_text="Not before; for uncertain ones, when that is decided.")
    expires_at = models.DateTimeField(help_text="After this nobody wants it any more.")
    times_uncertain = models.IntegerField(
        default=0, help_text="How often it may have been sent without our knowing: the mark stays."
    )
    times_revived = models.IntegerField(
        default=0, help_text="How often it came back from a final state; it may then follow its successors."
    )
    error_class = models.CharField(max_length=20, default="", blank=True)
    error = models.TextField(default="", blank=True)
    receipt = models.CharField(
        max_length=300, default="", blank=True, help_text="What the other side called it when it accepted."
    )
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    objects = MessageQuerySet.as_manager()

    class Meta:
        indexes = [
            # The claim's own order; partial where the database can, so that sent rows cost nothing.
            models.Index(
                fields=["channel", "available_at", "id"], name="outboxmessage_due", condition=Q(state="pending")
            ),
            # The head of each aggregate, for order.
            models.Index(
                fields=["aggregate", "id"],
                name="outboxmessage_unfinished",
                condition=Q(state__in=["pending", "processing", "uncertain"]),
            ),
            # Leases that ran out, uncertain messages to be decided, and the few that never were sent.
            models.Index(
                fields=["state", "lease_until"],
                name="outboxmessage_taken",
                condition=Q(state__in=["processing", "uncertain", "dead_lettered", "cancelled", "expired"]),
            ),
            models.Index(fields=["traceparent"], name="outboxmessage_trace", condition=Q(traceparent__gt="")),
        ]
        permissions = [
            ("cancel_outboxmessage", "Can cancel, retry and settle messages"),
            ("send_again_outboxmessage", "Can send again what may have been sent"),
            ("resend_outboxmessage", "Can resend what was sent"),
        ]

    def __str__(self) -> str:
        return promise_in_words(self.event_type, self.aggregate)

    @property
    def trace_id(self) -> str:
        return trace_id_of(self.traceparent)


RESENT = "resend/"  # before the first message in the keys of those that say it again


class ResendQuerySet(models.QuerySet["Resend"]):
    """Which messages say again what an earlier one said."""

    def of(self, message_ids: Iterable[uuid.UUID]) -> ResendQuerySet:
        """Those of these messages, oldest first."""
        return self.filter(resent_from__any=frozenset(message_ids)).order_by("message_id")


class Resend(models.Model):
    """A message that says again what a sent one said, because a person asked for it; unpartitioned, and few.

    `resent_from` is the first of them, also where a resent one was sent again.
    """

    message_id = models.UUIDField(primary_key=True)
    resent_from = models.UUIDField(help_text="The first message that said it.")
    readdressed = models.BooleanField(default=False, help_text="It goes to an address that a person has given.")
    batch = models.BigIntegerField(null=True, help_text="The replay batch that made it; null for a person's own.")
    created_at = models.DateTimeField()

    objects = ResendQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="resend_age")]
        constraints = [
            # Whatever happens to its worker: a batch says nothing twice.
            models.UniqueConstraint(fields=["resent_from", "batch"], name="resend_from_batch")
        ]

    def __str__(self) -> str:
        return f"{self.message_id} of {self.resent_from}"


class IdempotencyKey(models.Model):
    """A key that was used: the same request again gets the first answer, another one under the key is refused.

    Unpartitioned: a key that had to carry a partition column would be unique once per partition only.
    `scope` is "publish" for messages, or token and route for an HTTP request.
    """

    scope = IdentifierField(max_length=200)
    key = IdentifierField(max_length=200)
    payload_hash = models.CharField(max_length=32)
    message_id = models.UUIDField(null=True)
    status_code = models.IntegerField(null=True, help_text="Null while the first request is in progress.")
    answer = models.TextField(default="", blank=True)
    token = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="idempotencykey_scope")]
        indexes = [models.Index(fields=["created_at"], name="idempotencykey_age")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}"


class DeliveryAttempt(models.Model):
    """One try. Where a crash could hide its outcome it is written before the call, and closed after it.

    Partitioned by the day in its UUIDv7 `id`. An attempt without `finished_at` whose lease is gone means: the
    other side may have accepted.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    message_id = models.UUIDField()
    channel = IdentifierField(max_length=50)
    number = models.IntegerField()
    lease_token = models.UUIDField()
    path = models.CharField(max_length=10, help_text="Who claimed it: poll, cdc or manual.")
    worker = models.CharField(max_length=100)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=20, default="", blank=True)
    error = models.TextField(default="", blank=True)
    receipt = models.CharField(max_length=300, default="", blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["message_id", "id"], name="deliveryattempt_message")]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.message_id}: {self.outcome or 'open'}"
