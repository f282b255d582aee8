"""The table of replays: a person requests one, and one worker at a time carries it out."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from config.fields import IdentifierField
from outbox.bookkeeping.leases import Claimable, ClaimQuerySet

LEASE = timedelta(seconds=60)


class TopicReplayQuerySet(ClaimQuerySet["TopicReplay"]):
    """Replays."""

    def unfinished(self) -> TopicReplayQuerySet:
        return self.filter(state__in=(TopicReplay.State.PENDING, TopicReplay.State.RUNNING))

    def next_in_line(self, now: datetime, ours: Collection[uuid.UUID] = ()) -> TopicReplayQuerySet:
        """Unfinished ones that no other worker holds, the oldest first; `ours` are tokens of the one that asks."""
        rows = self.unfinished()
        return (rows.free(now) | rows.filter(lease_token__in=ours)).order_by("pk")

    def begin(self, pk: int, token: uuid.UUID, now: datetime, ours: Collection[uuid.UUID] = ()) -> int:
        """Lease a replay, to begin it or to continue where the last worker stopped; 0 when another one was faster."""
        free = self.next_in_line(now, ours).filter(pk=pk)
        return free.update(state=TopicReplay.State.RUNNING, lease_token=token, lease_until=now + LEASE)

    def previewed(self) -> TopicReplayQuerySet:
        """Dry runs that came to their end."""
        return self.filter(state=TopicReplay.State.DONE, dry_run=True)

    def run_by(self, token: uuid.UUID) -> TopicReplayQuerySet:
        """Still running, and still this worker's: neither cancelled nor taken over."""
        return self.filter(state=TopicReplay.State.RUNNING, lease_token=token)

    def finish(self, state: str, now: datetime, **changes: object) -> int:
        """End these, whoever holds them."""
        ended = {"state": state, "finished_at": now, "lease_token": None, "lease_until": None}
        return self.unfinished().update(**ended, **changes)


class TopicReplay(Claimable):
    """One timeframe of one topic, read again so that what is missing is applied (or only counted: `dry_run`).

    Position and counts are saved in the transaction of the data, so that a worker that dies costs nothing.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    topic = IdentifierField(max_length=249, help_text="Without KAFKA_TOPIC_PREFIX.")
    since = models.DateTimeField(help_text="The first record timestamp, inclusive.")
    until = models.DateTimeField(help_text="The last record timestamp, exclusive.")
    slack_seconds = models.IntegerField(default=3600)
    dry_run = models.BooleanField(default=False, help_text="Count what is missing, change nothing.")
    state = IdentifierField(max_length=10, choices=State, default=State.PENDING)

    topic_id = models.CharField(max_length=36, default="")
    bounds = models.JSONField(default=dict, help_text="Per partition: first offset, end offset.")
    positions = models.JSONField(default=dict, help_text="Per partition: the next offset to read.")
    total = models.BigIntegerField(default=0, help_text="Offsets to look at.")
    looked_at = models.BigIntegerField(default=0, help_text="Offsets looked at.")
    read = models.BigIntegerField(default=0, help_text="Records of the timeframe.")
    already = models.BigIntegerField(default=0, help_text="Records that were applied or buried before.")
    applied = models.BigIntegerField(default=0)
    parked = models.BigIntegerField(default=0, help_text="New dead letters.")
    outside = models.BigIntegerField(default=0, help_text="Records older than what is kept.")

    note = models.CharField(max_length=500, default="", help_text="Why it waits, failed or was cancelled.")
    reason = models.TextField()
    requested_by = models.CharField(max_length=150)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TopicReplayQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["state", "id"], name="topicreplay_state")]
        permissions = [("replay_topic", "Can replay a topic")]

    def __str__(self) -> str:
        return f"{self.topic} {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M}"

    @property
    def percent(self) -> float:
        """Of the offsets to look at; 100 when there are none."""
        return 100 * self.looked_at / self.total if self.total else 100.0
