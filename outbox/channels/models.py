"""The row of a channel: whether it is paused or broken, and its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import models
from django.db.models import F, Q

from config.admin import humanize
from config.fields import IdentifierField


class ChannelQuerySet(models.QuerySet["ChannelState"]):
    """Channels: one row each."""

    def named(self, channel: str) -> ChannelQuerySet:
        return self.filter(name=channel)

    def ailing(self) -> ChannelQuerySet:
        """Outages were counted, or the breaker is open."""
        return self.filter(Q(failures__gt=0) | Q(breaker="open"))

    def troubled(self) -> ChannelQuerySet:
        """Ailing, or messages were refused alike: what a message that is sent ends."""
        return self.filter(Q(failures__gt=0) | Q(breaker="open") | ~Q(refused_as=""))

    def waiting_less(self, until: datetime) -> ChannelQuerySet:
        """Not told to wait, or not as long."""
        return self.filter(Q(wait_until=None) | Q(wait_until__lt=until))

    def refused_in_a_row(self) -> ChannelQuerySet:
        return self.exclude(refused_as="")

    def owing_letters(self) -> ChannelQuerySet:
        """Resumed after refusals alike, and their letters are not requeued yet."""
        return self.filter(paused=False, requeue_since__isnull=False)

    def broken(self) -> ChannelQuerySet:
        return self.filter(breaker="open")

    def why_closed(self, channels: Iterable[str], now: datetime) -> str:
        """Why one of these channels takes nothing now, in one line; empty when all are open."""
        states = self.filter(name__in=set(channels)).order_by("name")
        return next(filter(None, (state.why_closed(now) for state in states)), "")

    def close_breaker(self, now: datetime, **more: object) -> int:
        """Somebody answers: no outage counts any more."""
        return self.update(breaker="closed", failures=0, opened_at=None, probe_at=None, updated_at=now, **more)

    def give_back(self, channel: str, tokens: int) -> int:
        """Return the tokens of messages that were not sent; the next refill cuts off what is too much."""
        return self.named(channel).update(tokens=F("tokens") + tokens)


class ChannelState(models.Model):
    """What all workers share about a channel: paused by a person, broken by an outage, tokens of its rate."""

    class Breaker(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    name = IdentifierField(max_length=50, primary_key=True)
    paused = models.BooleanField(default=False)
    paused_by = models.CharField(max_length=150, default="", blank=True)
    pause_reason = models.TextField(default="", blank=True)
    paused_at = models.DateTimeField(null=True)
    breaker = models.CharField(max_length=10, choices=Breaker, default=Breaker.CLOSED)
    failures = models.IntegerField(default=0, help_text="Outages in a row, over all workers.")
    opened_at = models.DateTimeField(null=True)
    probe_at = models.DateTimeField(null=True, help_text="When one message may try whether it is over.")
    last_error = models.TextField(default="", blank=True)
    wait_until = models.DateTimeField(null=True, help_text="Told to wait by the other side (429).")
    refused_as = IdentifierField(
        max_length=32, default="", db_default="", help_text="The cause of the last refusals in a row that may be ours."
    )
    refused_people = models.CharField(
        max_length=800, default="", db_default="", help_text="Hashes of their recipients, each once."
    )
    refused_since = models.DateTimeField(null=True)
    requeue_as = IdentifierField(
        max_length=32, default="", db_default="", help_text="The cause of the refusals that paused it."
    )
    requeue_since = models.DateTimeField(
        null=True, help_text="Letters of that cause since then are requeued when it is resumed."
    )
    tokens = models.FloatField(default=0.0)
    tokens_at = models.DateTimeField(null=True)
    cdc_seen_at = models.DateTimeField(null=True, help_text="Creation of the newest message the CDC path has brought.")
    updated_at = models.DateTimeField()

    objects = ChannelQuerySet.as_manager()

    class Meta:
        permissions = [("pause_channel", "Can pause and resume channels")]
        verbose_name = "channel"

    def __str__(self) -> str:
        return self.name

    def why_closed(self, now: datetime) -> str:
        """Why it takes nothing now, in one line; empty when it is open."""
        if self.paused:
            return f"channel {self.name} is paused: {self.pause_reason}"
        if self.breaker == ChannelState.Breaker.OPEN:
            return f"channel {self.name}: nobody answers"
        if self.wait_until and self.wait_until > now:
            return f"channel {self.name} was told to wait until {humanize.clock_in_zone(self.wait_until, now)}"
        return ""

    @property
    def open_since(self) -> datetime | None:
        """When it was last resumed, answered again, or was told to wait to; None when nothing says so."""
        # While it fails, each try changes the row: that is no sign that it has been opened.
        resumed = None if self.failures else self.updated_at
        return max(filter(None, [resumed, self.wait_until]), default=None)
