"""The inbox: stores each event once, unchanged, before it is applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import models, transaction

from config.database.chunks import delete_in_chunks
from config.database.errors import Remedy, remedy_for
from config.database.upsert import Upsert, timestamp_text, uuid_text
from config.fields import IdentifierField, in_ascii, storable
from config.uuid7 import uuid7
from notifications.mail import delivery_status
from notifications.webhooks.event import OTHER, Event

KINDS = [*((status, status) for status in delivery_status.STATUSES), (OTHER, "something else")]


class WebhookEventQuerySet(models.QuerySet["WebhookEvent"]):
    """Sentences about events."""

    def open(self) -> WebhookEventQuerySet:
        """Stored, and not yet applied: after a crash, or while the message is unknown."""
        return self.filter(applied_at__isnull=True)

    def received_before(self, moment: datetime) -> WebhookEventQuerySet:
        return self.filter(received_at__lt=moment)

    def locked(self) -> WebhookEventQuerySet:
        """In order, locked for this transaction; events that another process is applying are skipped."""
        return self.order_by("id").select_for_update(skip_locked=True)


class WebhookEvent(models.Model):
    """One event whose signature was verified. The unique key drops repeats."""

    class Verdict(models.TextChoices):
        NEW = "new", "not applied yet"
        APPLIED = "applied"
        NO_NEWS = "no_news", "said nothing new"
        IGNORED = "ignored", "of no interest"
        PARKED = "parked", "waits for its message"
        UNKNOWN_MESSAGE = "unknown_message", "message never seen"
        OTHER_RECIPIENT = "other_recipient", "about another recipient"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    provider = IdentifierField(max_length=50)
    dedup_id = IdentifierField(help_text="The provider's id of the event, or a hash of what makes it one.")
    kind = IdentifierField(max_length=15, choices=KINDS)
    body = models.TextField(help_text="Exactly as it came; of a list, this event's part.")
    headers = models.JSONField(default=dict, help_text="What was signed with it; never a password.")
    message_id = models.UUIDField(null=True)
    provider_message_id = IdentifierField(default="", blank=True)
    recipient = models.CharField(max_length=254, default="", blank=True)
    detail = models.CharField(max_length=300, default="", blank=True)
    occurred_at = models.DateTimeField()
    received_at = models.DateTimeField()
    verdict = IdentifierField(max_length=15, choices=Verdict, default=Verdict.NEW)
    applied_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0, editable=False)

    objects = WebhookEventQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "dedup_id"], name="webhookevent_once")]
        indexes = [
            models.Index(fields=["applied_at", "id"], name="webhookevent_open"),
            models.Index(fields=["received_at"], name="webhookevent_age"),
            models.Index(fields=["message_id"], name="webhookevent_message"),
            models.Index(fields=["verdict", "-id"], name="webhookevent_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.kind}"


STORE = Upsert(
    WebhookEvent,
    columns="id dedup_id kind body message_id provider_message_id recipient detail occurred_at",
    constants="provider headers received_at verdict",
    key="provider dedup_id",
    update={},
    token="token",  # noqa: S106 (a column)
    returning="id",
)


def store(events: Sequence[Event], provider: str, headers: Mapping[str, str], now: datetime) -> list[UUID]:
    """Store the events that are new; returns their ids. Committed before anything is applied."""
    rows = {event.dedup_id: event for event in events}
    written = [_row(rows[key], now) for key in sorted(rows)]
    return _store(written, {"provider": provider, "headers": _json(headers), "received_at": now, "verdict": "new"})


def _store(rows: Sequence[tuple[Any, ...]], constants: Mapping[str, Any]) -> list[UUID]:
    """One that the database refuses is found by halves, and stored in ASCII: a provider repeats all of a request."""
    try:
        with transaction.atomic():
            return [UUID(str(row[0])) for row in STORE.run(rows, constants)]
    except Exception as error:
        if remedy_for(error) is not Remedy.DATA or (len(rows) == 1 and (plain := in_ascii(rows[0])) == list(rows[0])):
            raise
    if len(rows) == 1:
        return _store([_cut(plain)], constants)
    middle = len(rows) // 2
    return [*_store(rows[:middle], constants), *_store(rows[middle:], constants)]


def _cut(row: Sequence[Any]) -> tuple[Any, ...]:
    """The columns that have a length; escaped they are longer."""
    name, dedup_id, kind, body, message_id, provider_id, recipient, detail, occurred = row
    return name, dedup_id[:200], kind, body, message_id, provider_id[:200], recipient[:254], detail[:300], occurred


def sweep_old(now: datetime) -> int:
    """Delete what is older than WEBHOOK_RETENTION_DAYS; returns how many."""
    before = now - timedelta(days=settings.WEBHOOK_RETENTION_DAYS)
    return delete_in_chunks(WebhookEvent.objects.received_before(before).order_by("received_at"))


def _row(event: Event, now: datetime) -> tuple[Any, ...]:
    message_id = uuid_text(event.message_id) if event.message_id else None
    # The status with the latest time holds: a provider's clock that runs ahead must not win for ever.
    occurred = min(event.occurred_at or now, now + timedelta(seconds=60))
    return (
        uuid_text(uuid7()), storable(event.dedup_id, 200), event.kind, event.raw.replace("\x00", "\ufffd"), message_id,
        storable(event.provider_message_id, 200), storable(event.recipient, 254),
        storable(event.detail, 300), timestamp_text(occurred),
    )  # fmt: skip


def _json(headers: Mapping[str, str]) -> str:
    return json.dumps(dict(headers))
