"""The tables of replay batches: one verb over many letters or messages, and what became of each of them."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from config.fields import IdentifierField
from config.flows import called
from config.telemetry.logs import log_committed
from outbox.bookkeeping.leases import Claimable, ClaimQuerySet
from outbox.replay_batches import pacing

LEASE = timedelta(seconds=15)
OUTCOMES = ("eligible", "skipped", "requeued", "verified", "failed_again", "refused", "left")
LIVE = ("canary", "running", "paused")  # may take letters back, or would as soon as somebody says so
TO_DO = ("counting", "holding", "canary", "running", "verifying")  # a worker has something to do
# Verbs whose effect comes later: a few go first, and their effects are proven.
SENDING = frozenset({"requeue", "edit", "resend"})
OF_MESSAGES = ("resend",)  # verbs about messages of the outbox; the others are about dead letters
BEGUN = ("canary", "running", "paused", "stopped", "verifying", "cancelled")  # some letters may be on their way


class ReplayBatchQuerySet(ClaimQuerySet["ReplayBatch"]):
    """Replay batches; each change of a state is one guarded UPDATE whose count is checked."""

    def take(self, pk: int, token: uuid.UUID, now: datetime) -> int:
        """Take a batch, or keep it; 0 while another process holds it."""
        mine = models.Q(lease_token=token) | models.Q(lease_until=None) | models.Q(lease_until__lte=now)
        return self.filter(mine, pk=pk).update(lease_token=token, lease_until=now + LEASE)

    def in_work(self) -> ReplayBatchQuerySet:
        """Those a worker looks at: something is to be done, judged or put back."""
        on_their_way = models.Q(state__in=BEGUN, requeued__gt=0)
        return self.filter(
            models.Q(state__in=TO_DO)
            | on_their_way
            | models.Q(state="cancelled", eligible__gt=0, pinned_at__isnull=False)
        ).order_by("pk")

    def of_letters(self) -> ReplayBatchQuerySet:
        return self.exclude(verb__in=OF_MESSAGES)

    def held(self, pk: int, token: uuid.UUID, *states: str) -> ReplayBatch | None:
        """The batch, locked until the transaction ends, if `token` still holds it in one of these states."""
        return self.held_by(token).filter(pk=pk, state__in=states).select_for_update().first()


class ReplayBatch(Claimable):
    """One verb over the letters or messages that a filter found up to a cut-off; its counters are those of its items."""

    class Verb(models.TextChoices):
        REQUEUE = "requeue"
        EDIT = "edit"
        DISCARD = "discard"
        RESOLVE = "resolve"
        RESTORE = "restore"
        RESEND = "resend"

    class State(models.TextChoices):
        COUNTING = "counting"
        PREVIEWED = "previewed"
        HOLDING = "holding"
        CANARY = "canary"
        RUNNING = "running"
        PAUSED = "paused"
        STOPPED = "stopped"
        VERIFYING = "verifying"
        DONE = "done"
        CANCELLED = "cancelled"

    verb = models.CharField(max_length=10, choices=Verb)
    filter = models.JSONField(default=dict, help_text="ids, group, source, status, before, all.")
    cut_off = models.UUIDField(null=True, help_text="Letters that arrived later are not in it.")
    code = models.CharField(max_length=30, blank=True, default="", help_text="Of a discard.")
    edit = models.JSONField(default=dict, help_text="Of an edit: the change; its values go with the items.")
    kinds = models.JSONField(
        default=list, help_text="Source and step of its letters, and whether it awaits their effect."
    )
    state = IdentifierField(max_length=10, choices=State, default=State.COUNTING)
    note = models.CharField(max_length=500, blank=True, default="", help_text="Why it waits, stopped or was cancelled.")
    automatic = models.BooleanField(default=False, help_text="Asked for in a terminal: nobody confirms the preview.")

    pinned = models.BigIntegerField(default=0, help_text="Letters in it.")
    eligible = models.BigIntegerField(default=0, help_text="Not acted on yet.")
    skipped = models.BigIntegerField(default=0, help_text="Not eligible, at the preview or when their turn came.")
    requeued = models.BigIntegerField(default=0, help_text="Taken back, without proof of their effect.")
    verified = models.BigIntegerField(default=0, help_text="Done, with proof.")
    failed_again = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0, help_text="By the flow or the database; or cancelled on their way.")
    left = models.BigIntegerField(default=0, help_text="Not acted on, because it was cancelled.")
    skipped_why = models.JSONField(default=dict, help_text="Number by reason.")
    judged_to = models.UUIDField(null=True, help_text="How far the preview has counted.")

    rate = models.FloatField(null=True, help_text="Letters a second; null is unlimited.")
    ramp_from = models.DateTimeField(null=True, help_text="When the rate began to climb.")
    tokens = models.FloatField(default=0.0)
    tokens_at = models.DateTimeField(null=True)
    marks = models.JSONField(
        default=list, help_text="When so many had had their turn, of the last minute: what it measures."
    )
    canary = models.IntegerField(null=True, help_text="Letters that go first; null leaves it to the size.")
    ring = models.CharField(max_length=pacing.STOP_WINDOW, blank=True, default="", help_text="The last verdicts.")
    stop_percent = models.FloatField(default=pacing.STOP_PERCENT)

    reason = models.TextField(blank=True, default="")
    requested_by = models.CharField(max_length=150)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField()
    pinned_at = models.DateTimeField(null=True)
    previewed_at = models.DateTimeField(null=True)
    hold_until = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    promoted_at = models.DateTimeField(null=True, help_text="When the canary was over.")
    finished_at = models.DateTimeField(null=True)
    items_gone_at = models.DateTimeField(null=True, help_text="When its items were swept; the totals stay.")

    objects = ReplayBatchQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["state", "id"], name="replaybatch_state")]
        permissions = [("bulk_replay", "Can bulk requeue, discard, resolve and restore")]
        verbose_name_plural = "replay batches"

    def __str__(self) -> str:
        return f"Replay batch {self.pk}"

    @property
    def nouns(self) -> tuple[str, str]:
        """What one and several of its items are called."""
        return ("message", "messages") if self.verb in OF_MESSAGES else ("letter", "letters")

    @property
    def sources(self) -> list[str]:
        """Of its letters."""
        return sorted({source for source, _step, _awaited in self.kinds})

    @property
    def sends(self) -> bool:
        """Whether its verb takes letters back or sends messages: what follows is tried on a few, paced and proven."""
        return self.verb in SENDING

    @property
    def acted_on(self) -> int:
        """Letters whose turn has come."""
        return self.requeued + self.verified + self.failed_again + self.refused

    @property
    def turns(self) -> int:
        """Letters whose turn has come, those among them that were skipped."""
        return self.pinned - self.eligible - self.left

    @property
    def to_act_on(self) -> int:
        return self.acted_on + self.eligible + self.left

    @property
    def percent(self) -> float:
        """Acted on, of the eligible ones."""
        return 100 * self.acted_on / self.to_act_on if self.to_act_on else 100.0

    @property
    def canary_size(self) -> int:
        """Letters that go first; of a verb that waits for no effect none."""
        if not self.sends:
            return 0
        return pacing.canary_size(self.eligible) if self.canary is None else self.canary

    @property
    def window(self) -> int:
        return pacing.window_of(self.rate)

    def change(self, **changes: object) -> int:
        """Write columns of a batch that this transaction has locked; 0 when it is not what was read any more."""
        mine = ReplayBatch.objects.filter(pk=self.pk, state=self.state, lease_token=self.lease_token)
        changed = mine.update(**changes)
        if changed and changes.get("state", self.state) != self.state:
            became = str(changes["state"])
            log_committed("replay_batch_moved", batch=self.pk, verb=self.verb, was=self.state, became=became)
        for name, value in changes.items():
            setattr(self, name, value)
        return changed


class ReplayItemQuerySet(models.QuerySet):
    """Letters of batches."""

    def of(self, batch: ReplayBatch) -> ReplayItemQuerySet:
        return self.filter(batch_id=batch.pk)

    def acted_on(self, batch_id: int) -> ReplayItemQuerySet:
        """What a batch has taken back or closed."""
        return self.filter(batch_id=batch_id, state__in=("requeued", "verified"))

    def oldest_first(self) -> ReplayItemQuerySet:
        return self.order_by("letter")

    def held_in_live_batches(self) -> ReplayItemQuerySet:
        """Still to be acted on, in a batch that somebody has confirmed."""
        waiting = models.Q(state="eligible", batch__state__in=("holding", *LIVE))
        return self.filter(waiting | models.Q(state="requeued", batch__state__in=(*LIVE, "verifying")))


class ReplayItem(models.Model):
    """One letter of a batch, or one message. What is copied from it is what the order of the actions depends on."""

    class State(models.TextChoices):
        ELIGIBLE = "eligible"
        SKIPPED = "skipped"
        REQUEUED = "requeued"
        VERIFIED = "verified"
        FAILED_AGAIN = "failed_again"
        REFUSED = "refused"
        LEFT = "left"

    batch = models.ForeignKey(
        ReplayBatch, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="items"
    )
    letter = models.UUIDField()
    source = IdentifierField(max_length=100)
    step = IdentifierField(max_length=50)
    business_key = IdentifierField(blank=True)
    size = models.BigIntegerField(default=0, help_text="Bytes of its payload: how many may be in memory at once.")
    state = IdentifierField(max_length=12, choices=State, default=State.ELIGIBLE)
    canary = models.BooleanField(default=False)
    note = models.CharField(max_length=500, blank=True, default="")
    successor = models.UUIDField(
        null=True,
        help_text="The letter of the next revision, if it failed again; of a message the one that says it again.",
    )
    changed_at = models.DateTimeField(null=True)

    objects = ReplayItemQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["batch", "state", "letter"], name="replayitem_state")]
        constraints = [models.UniqueConstraint(fields=["letter", "batch"], name="replayitem_letter")]

    def __str__(self) -> str:
        return called(self.business_key) if self.business_key else str(self.letter)
