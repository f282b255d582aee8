"""The table of promises: the columns of an envelope of `messages-in`, and what a relay notes."""

from __future__ import annotations

import json
from hashlib import sha256

from django.db import models


class PromiseQuerySet(models.QuerySet["Promise"]):
    def keyed(self, key: str) -> PromiseQuerySet:
        return self.filter(key_digest=digest_of(key))

    def pending(self) -> PromiseQuerySet:
        """In the order in which they leave."""
        return self.filter(state=Promise.State.PENDING).order_by("id")

    def held_by(self, token: str) -> PromiseQuerySet:
        """Pending ones that this claim, and no later one, has leased."""
        return self.filter(state=Promise.State.PENDING, lease_token=token)

    def promise_again(self) -> int:
        """Refused ones are sent, although others of their aggregate may have left since; returns how many."""
        return self.filter(state=Promise.State.REFUSED).update(state=Promise.State.PENDING, error="")


class Promise(models.Model):
    """A message that Spillway is to send. Ids rise in the order of the calls of publish()."""

    class State(models.TextChoices):
        PENDING = "pending"
        SENT = "sent"  # the broker has confirmed it
        REFUSED = "refused"  # the broker will never take it; `error` says why
        CAPTURED = "captured"  # a connector reads it from the log of the database

    id = models.BigAutoField(primary_key=True)
    channel = models.CharField(max_length=50)
    event_type = models.CharField(max_length=100)
    aggregate = models.CharField(max_length=200)
    idempotency_key = models.CharField(max_length=200)
    key_digest = models.CharField(max_length=64, unique=True, editable=False)  # to MySQL the key A is the key a
    payload = models.TextField()  # JSON, byte for byte as it is sent
    expires_at = models.CharField(max_length=40, blank=True)  # ISO 8601, whatever USE_TZ says
    created_at = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=0)  # claims: after a second one it may have left twice
    lease_token = models.CharField(max_length=32, blank=True, editable=False)  # whoever claimed it last
    lease_until = models.FloatField(default=0, editable=False)  # Unix time of the database

    objects = PromiseQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["state", "id"], name="spillway_promise_state"),
            models.Index(fields=["created_at"], name="spillway_promise_created"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} of {self.aggregate}"

    def envelope(self) -> bytes:
        """As `messages-in` takes it; the digits of the payload stay as they were written."""
        names = ("channel", "event_type", "aggregate", "idempotency_key", "expires_at")
        fields = {name: getattr(self, name) for name in names if getattr(self, name)}
        return f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "payload": {self.payload}}}'.encode()


def digest_of(key: str) -> str:
    return sha256(key.encode()).hexdigest()
