"""Tables of what people are told: subscriptions, incidents, and notices; with their queries."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, Subquery, When
from django.urls import reverse

from config.fields import IdentifierField
from outbox.bookkeeping.leases import Claimable, ClaimQuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser

LEASE = timedelta(seconds=60)  # longer than a try may take; then it is over, however it went
KINDS = {
    "failure_group": ("Failure groups", "new, back again, or rising"),
    "worker": ("Workers", "dead, failed, silent, hanging, or waiting for the schema registry"),
    "channel": ("Channels", "paused, told to wait for long, or nobody answers there"),
    "partition": ("Reading from Kafka", "a partition stopped, a reader that does not report, Kafka away"),
    "batch": ("Replay batches", "stopped by their rule"),
    "expiring": ("Messages about to expire", "and those that leave late"),
    "runway": ("Storage", "partitions of a table end soon"),
    "stuck": ("Work that does not move", "due and not sent, held without a decision, requeued without effect"),
    "on_hold": ("What is on hold", "and may have been forgotten"),
    "sign_in": ("Logins", "the break-glass account was used"),
}
MOST_OF_ONE = 10  # subscriptions of one person
URGENCIES = ("now", "soon", "watch")


def urgency_rank() -> Case:
    """0 for notices of what cannot wait, and for tests."""
    ranks = [When(incident__urgency=urgency, then=rank) for rank, urgency in enumerate(URGENCIES)]
    return Case(*ranks, default=0)


class SubscriptionQuerySet(ClaimQuerySet["Subscription"]):
    """Who is told; each change of what a try came to is one guarded UPDATE."""

    def seen_by(self, user: AbstractUser | AnonymousUser) -> Self:
        """Those of teams and one's own; all for whoever manages them."""
        if user.has_perm("outbox.manage_subscription"):
            return self
        return self.filter(Q(owner=None) | Q(owner_id=user.pk))

    def of_active_people(self) -> Self:
        """Those of teams, and of people who may still log in."""
        return self.filter(Q(owner=None) | Q(owner__is_active=True, owner__is_staff=True))

    def with_due_notices(self, now: datetime) -> Self:
        """Free ones that have something to tell; after a failure only when its time has come, but tests at once.

        What cannot wait comes first; then who is reached before who is not, and teams before single people.
        """
        mine = Notice.objects.filter(subscription=OuterRef("pk")).due(now)
        patient = Q(next_try_at=None) | Q(next_try_at__lte=now)
        waiting = (patient & Exists(mine)) | Exists(mine.filter(phase=Notice.Phase.TEST))
        first = Subquery(mine.annotate(rank=urgency_rank()).order_by("rank").values("rank")[:1])
        reached, team = (Case(When(condition, then=0), default=1) for condition in (Q(failures=0), Q(owner=None)))
        return self.of_active_people().free(now).filter(waiting).order_by(first, reached, team, "pk")

    def failing(self) -> Self:
        return self.of_active_people().filter(failures__gt=0)


class Subscription(Claimable):
    """Who is told of what, where and when. The address is a secret: it is stored sealed, or in a file that is named."""

    class Urgency(models.TextChoices):
        NOW = "now", "only what cannot wait"
        SOON = "soon", "also what can wait for an hour"
        WATCH = "watch", "everything"

    name = models.CharField(max_length=100, unique=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, help_text="Whose it is; empty: a team's."
    )
    address = models.TextField(help_text="Sealed, or `file:NAME`.")
    shown = models.CharField(max_length=200, help_text="What of the address may be shown.")
    kinds = models.JSONField(default=list)
    urgency = IdentifierField(max_length=5, choices=Urgency, default=Urgency.SOON)
    digest_minutes = models.IntegerField(default=0, help_text="0: at once.")
    quiet_from = models.TimeField(null=True)
    quiet_to = models.TimeField(null=True)
    zone = models.CharField(max_length=50, default="UTC")
    wakes = models.BooleanField(default=True, help_text="What cannot wait is told in quiet hours, too.")
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, help_text="When a notice was last accepted there.")
    failures = models.IntegerField(default=0, help_text="Tries in a row that failed.")
    failing_since = models.DateTimeField(null=True)
    next_try_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, default="")
    tested_at = models.DateTimeField(null=True, help_text="When a test was last asked for.")

    objects = SubscriptionQuerySet.as_manager()

    class Meta:
        permissions = [("manage_subscription", "Can manage subscriptions of teams and of others")]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        """A key of `config.admin.html.STATES`."""
        return "notice_failing" if self.failures else "notice_works" if self.sent_at else "notice_untried"

    def may_be_changed_by(self, user: AbstractUser | AnonymousUser) -> bool:
        return bool(user.has_perm("outbox.manage_subscription") or (self.owner_id and self.owner_id == user.pk))


class IncidentQuerySet(models.QuerySet["Incident"]):
    def open(self) -> Self:
        return self.filter(over_at=None)

    def outdated(self, before: datetime) -> Self:
        """Long over, and of no notice that has still to go."""
        waiting = Notice.objects.filter(incident=OuterRef("pk"), state__in=Notice.UNFINISHED)
        return self.filter(Q(over_at__lt=before) & ~Exists(waiting))


class Incident(models.Model):
    """One thing that needs people, as home shows it: by what it is (kind, key), never by its numbers."""

    kind = IdentifierField(max_length=20)
    key = IdentifierField(max_length=200)
    title = models.CharField(max_length=300)
    why = models.CharField(max_length=1000, default="")
    amount = models.CharField(max_length=100, default="")
    url = models.CharField(max_length=500)
    urgency = IdentifierField(max_length=5)
    episode = models.IntegerField(default=1, help_text="How often it began, with a window of rest before each.")
    returns = models.IntegerField(default=0, help_text="How often it came back in this episode.")
    opened_at = models.DateTimeField(help_text="When this episode began.")
    over_at = models.DateTimeField(null=True, db_index=True, help_text="Since when home does not show it.")

    objects = IncidentQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "key"], name="incident_key")]

    def __str__(self) -> str:
        return self.title


class NoticeQuerySet(models.QuerySet["Notice"]):
    """What is told to whom; each change of a state is one guarded UPDATE whose count is checked."""

    def due(self, now: datetime) -> Self:
        return self.filter(state__in=[Notice.State.WAITING, Notice.State.UNSURE], due_at__lte=now)

    def most_urgent_first(self) -> Self:
        """What cannot wait, then the others; those of one incident as they came."""
        return self.order_by(urgency_rank(), "created_at", "pk")

    def unfinished(self) -> Self:
        return self.filter(state__in=Notice.UNFINISHED)

    def held_by(self, token: uuid.UUID) -> Self:
        """Those that this try was the last to take; who came late may still say that they arrived."""
        return self.filter(token=token, state__in=[Notice.State.SENDING, Notice.State.UNSURE])

    def lost(self, now: datetime) -> Self:
        """Those whose sender is gone: what became of them nobody knows."""
        return self.filter(state=Notice.State.SENDING, tried_at__lte=now - LEASE)

    def outdated(self, before: datetime) -> Self:
        """Old ones that nobody sends any more: settled, or for an account that may not log in."""
        told = Subscription.objects.of_active_people().filter(pk=OuterRef("subscription"))
        return self.filter(~Q(state__in=Notice.UNFINISHED) | ~Exists(told), created_at__lt=before)


class Notice(models.Model):
    """That one subscription is told one phase of one incident. Its key makes that happen once."""

    class Phase(models.TextChoices):
        OPENED = "opened"
        RETURNED = "returned", "came back"
        REMINDED = "reminded", "still there"
        RESOLVED = "resolved", "over"
        SETTLED = "settled", "over, and did not come back"
        TEST = "test"

    class State(models.TextChoices):
        WAITING = "waiting"
        SENDING = "sending"
        UNSURE = "unsure"
        SENT = "sent"
        GIVEN_UP = "given_up"

    UNFINISHED = ("waiting", "sending", "unsure")

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="notices")
    incident = models.ForeignKey(Incident, null=True, on_delete=models.CASCADE, related_name="notices")
    episode = models.IntegerField(default=0)
    phase = IdentifierField(max_length=10, choices=Phase)
    number = models.IntegerField(default=0, help_text="Of reminders, and of tests.")
    state = IdentifierField(max_length=10, choices=State, default=State.WAITING)
    title = models.CharField(max_length=300, default="", help_text="What it said, or will say.")
    due_at = models.DateTimeField(help_text="Not before.")
    created_at = models.DateTimeField()
    token = models.UUIDField(null=True, help_text="Which try has it in hand, or had it last.")
    tries = models.IntegerField(default=0)
    tried_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    said_over = models.BooleanField(default=False, help_text="It said already that the incident is over.")
    repeat = models.BooleanField(default=False, help_text="It may have arrived before, and says so.")
    error = models.CharField(max_length=300, default="")

    objects = NoticeQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["subscription", "state", "due_at"], name="notice_due"),
            models.Index(fields=["state", "due_at"], name="notice_state"),
            models.Index(fields=["created_at"], name="notice_created"),
        ]
        constraints = [
            # A test has no incident, and NULL is equal to nothing: its own lever counts tests.
            models.UniqueConstraint(
                fields=["subscription", "incident", "episode", "phase", "number"], name="notice_once"
            )
        ]

    def __str__(self) -> str:
        return self.title or f"{self.get_phase_display()}"

    @property
    def url(self) -> str:
        """The page of what it is about."""
        return (
            self.incident.url
            if self.incident
            else reverse("admin:outbox_subscription_change", args=[self.subscription_id])
        )
