"""Deliveries: what happened to a mail after the provider accepted it. One row per message, one recipient each."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast

from django.db import models

from config.database.upsert import Rewrite, Upsert, timestamp_text, uuid_text
from config.fields import IDENTIFIER_LENGTH, IdentifierField, storable
from config.partitions import storable as with_partition
from config.telemetry.logs import MOST_IDS, RowIds, log, log_committed
from notifications.mail import content
from notifications.partitioned import DELIVERIES
from outbox.channels.handlers import Message, Outcome
from outbox.models import OutboxMessage


# -- The status: the strongest that was ever reported, in whatever order reports arrive; pure ---------------------
class DeliveryStatus(models.TextChoices):
    ACCEPTED = "accepted"
    DEFERRED = "deferred"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    REJECTED = "rejected"
    COMPLAINED = "complained"


ACCEPTED, DEFERRED, DELIVERED, BOUNCED, REJECTED, COMPLAINED = STATUSES = DeliveryStatus.values
SUPPRESSING = {BOUNCED: "hard_bounce", COMPLAINED: "complaint"}

# Of the three in the middle the one that happened last holds: a bounce is final unless the same recipient
# got the mail later, and a delivery can bounce later. A complaint is never taken back.
STRENGTH = {ACCEPTED: 0, DEFERRED: 1, DELIVERED: 2, REJECTED: 2, BOUNCED: 2, COMPLAINED: 3}
TIE = {DELIVERED: 0, REJECTED: 1, BOUNCED: 2}


class Standing(NamedTuple):
    """A status, and when the provider says it came to be."""

    status: str
    at: datetime

    @property
    def weight(self) -> tuple[int, float, int]:
        middle = STRENGTH[self.status] == 2
        return (STRENGTH[self.status], self.at.timestamp() if middle else 0.0, TIE.get(self.status, 0))


def stronger(first: Standing, second: Standing) -> Standing:
    """Which of two statuses holds. Neither the order of reports nor repeats change the result."""
    return max(first, second, key=lambda standing: (standing.weight, -standing.at.timestamp()))


# -- The table -----------------------------------------------------------------------------------------------
TIMES = {DELIVERED: "delivered_at", BOUNCED: "bounced_at", COMPLAINED: "complained_at"}


class News(NamedTuple):
    """A status of a mail that a provider reported, with its text."""

    standing: Standing
    detail: str = ""


class NewsEffect(NamedTuple):
    """The effect of a piece of news: whether it changed the row, and whether its status holds after all of them."""

    changed: bool
    holds: bool


class Accepted(NamedTuple):
    """A mail that a provider took, with its own id for it."""

    message_id: uuid.UUID
    order_id: str
    recipient: str
    provider_id: str
    event_type: str
    correlation_id: str


def accepted(message: Message | OutboxMessage, provider_id: str) -> Accepted:
    mail = content.decode(message.payload)
    return Accepted(message.id, mail.order_id, mail.to, provider_id, message.event_type, message.correlation_id)


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    """Queries of deliveries. Partitioned by the message's id: name it, and one partition is read."""

    def of_messages(self, ids: Iterable[uuid.UUID]) -> DeliveryQuerySet:
        return self.filter(message_id__in=list(ids))

    def known_as(self, provider: str, provider_ids: Iterable[str]) -> DeliveryQuerySet:
        """By the provider's own ids, for events that do not carry ours."""
        return self.filter(provider=provider, provider_message_id__in=list(provider_ids))

    def locked(self) -> DeliveryQuerySet:
        """Locked, always in the same order, so that two changes of several rows do not deadlock."""
        return self.order_by("message_id").select_for_update()


class Delivery(models.Model):
    """Written when the provider accepts a message, updated by its webhooks."""

    message_id = models.UUIDField(primary_key=True, editable=False)
    order_id = IdentifierField(default="", blank=True)
    recipient = models.CharField(max_length=254)
    provider = IdentifierField(max_length=50)
    provider_message_id = IdentifierField(default="", blank=True)
    status = IdentifierField(max_length=15, choices=DeliveryStatus, default=DeliveryStatus.ACCEPTED)
    status_at = models.DateTimeField(help_text="When it came to be, by the provider's clock.")
    detail = models.CharField(max_length=300, default="", blank=True)
    accepted_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    bounced_at = models.DateTimeField(null=True)
    complained_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "deliveries"
        permissions = [("suppress_recipient", "Can suppress recipients")]
        indexes = [
            models.Index(fields=["provider", "provider_message_id"], name="delivery_provider_id"),
            models.Index(fields=["status", "-message_id"], name="delivery_status"),
        ]

    def __str__(self) -> str:
        return f"Delivery of {self.message_id}"


ACCEPT = Upsert(
    Delivery,
    columns="message_id order_id recipient provider_message_id",
    constants="provider status detail status_at accepted_at updated_at",
    key="message_id",
    # A webhook may have written the row first: then only the provider's id is new. A second try may have another id.
    update={"provider": "new.provider", "provider_message_id": "new.provider_message_id"},
)
MOVE = Rewrite(
    Delivery,
    key="message_id",
    changes="status status_at detail delivered_at bounced_at complained_at",
    constants="updated_at",
    fixed="status",  # as it was when the row was locked
    span="message_id",
)


def accept(results: Sequence[tuple[Message, Outcome]], provider: str, now: datetime) -> None:
    """A row for each message that was sent, in the transaction that settles it."""
    write([accepted(message, outcome.receipt) for message, outcome in results], provider, now)


def write(rows: Sequence[Accepted], provider: str, now: datetime) -> None:
    """By rising message id, in the caller's transaction. A message that outlived its day here gets no row."""
    kept = _with_partition(rows, now)
    values = [
        (uuid_text(row.message_id), row.order_id[:IDENTIFIER_LENGTH], row.recipient, storable(row.provider_id))
        for row in kept
    ]
    times = dict.fromkeys(["status_at", "accepted_at", "updated_at"], now)
    ACCEPT.run(values, {"provider": provider, "status": ACCEPTED, "detail": "", **times})
    if kept:
        ids = RowIds(
            kept, message_id="message_id", order_id="order_id", event_type="event_type", correlation_id="correlation_id"
        )
        log_committed("deliveries_accepted", provider=provider, deliveries=len(kept), ids=ids)


def _with_partition(rows: Sequence[Accepted], now: datetime) -> list[Accepted]:
    """Those whose day was not dropped; nobody drops that of today."""
    today = cast(uuid.UUID, DELIVERIES.value(now.astimezone(UTC).date()))
    older = {row.message_id for row in rows if row.message_id < today}
    if not older:
        return sorted(rows)
    Delivery.objects.of_messages(older).exists()  # reads the table: rotation drops nothing before this transaction ends
    gone = older - with_partition(DELIVERIES, older)
    return sorted(row for row in rows if row.message_id not in gone)


def move(news: Mapping[uuid.UUID, Sequence[News]], now: datetime) -> dict[uuid.UUID, list[NewsEffect]]:
    """Apply news to deliveries; returns the effect of each piece.

    The rows are locked, the next state is computed here, and every UPDATE names the old one. A delivery that is gone
    is judged as one that was accepted, and nothing of it is stored: a bounce is one all the same.
    """
    effects: dict[uuid.UUID, list[NewsEffect]] = {}
    changed: dict[str, list[tuple[str | None, ...]]] = {}
    moves: list[tuple[uuid.UUID, str, str, str]] = []
    for row in Delivery.objects.of_messages(news).locked():
        was = row.status
        effects[row.message_id] = _take_in_all(row, news[row.message_id])
        if any(effect.changed for effect in effects[row.message_id]):
            changed.setdefault(was, []).append(_values(row))
            moves.append((row.message_id, row.order_id, was, row.status))
    for was, rows in sorted(changed.items()):
        moved = MOVE.run(rows, {"updated_at": now, "status": was})
        if moved != len(rows):
            # Locked rows cannot change under us; if they did, nothing of this transaction may stay.
            raise RuntimeError(f"moved {moved} of {len(rows)} locked deliveries")
    for message_id in news.keys() - effects.keys():
        effects[message_id] = _take_in_all(Delivery(status=ACCEPTED, status_at=now), news[message_id])
    if moves and log.isEnabledFor(logging.INFO):
        # A delivery does not say what its mail was about: asked where the line is wanted, and for those that it names.
        named = [pk for pk, *_ in moves[:MOST_IDS]]
        messages = OutboxMessage.objects.among(named).values_list("id", "event_type", "correlation_id")
        kept = {pk: (event_type, correlation_id) for pk, event_type, correlation_id in messages}
        about = RowIds([kept.get(pk, ("", "")) for pk in named], event_type=0, correlation_id=1)
        ids = about | RowIds(moves, message_id=0, order_id=1, was=2, became=3)
        log_committed("deliveries_moved", deliveries=len(moves), ids=ids)
    return effects


def _take_in_all(row: Delivery, news: Sequence[News]) -> list[NewsEffect]:
    """Change the row in memory; returns the effect of each piece."""
    changes = [_take_in(row, report) for report in news]
    holding = [(row.status, row.status_at) == report.standing for report in news]
    return [NewsEffect(*effect) for effect in zip(changes, holding, strict=True)]


def _take_in(row: Delivery, news: News) -> bool:
    """Change the row in memory; returns whether it changed."""
    before = (row.status, row.status_at, row.delivered_at, row.bounced_at, row.complained_at)
    now = stronger(Standing(row.status, row.status_at), news.standing)
    if now != (row.status, row.status_at):
        row.status, row.status_at, row.detail = now.status, now.at, news.detail
    if name := TIMES.get(news.standing.status):
        setattr(row, name, min(filter(None, [getattr(row, name), news.standing.at])))
    return before != (row.status, row.status_at, row.delivered_at, row.bounced_at, row.complained_at)


def _values(row: Delivery) -> tuple[str | None, ...]:
    times = (getattr(row, name) for name in TIMES.values())
    return (
        uuid_text(row.message_id),
        row.status,
        timestamp_text(row.status_at),
        storable(row.detail, 300),
        *(timestamp_text(when) if when else None for when in times),
    )
