"""Tables of operator actions, of the seals that chain them, and of the rights that roles were offered."""

from __future__ import annotations

from django.db import models
from django.db.models import Exists, OuterRef
from django.utils.text import capfirst

from config.fields import IdentifierField


def verb_in_words(verb: str) -> str:
    """`Send again` for `send_again`."""
    return capfirst(verb.replace("_", " "))


class ActionSubject(models.Model):
    """One of several rows that an action was about."""

    subject_type = IdentifierField(max_length=50)
    subject_id = IdentifierField(max_length=150)
    action = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subject_id", "subject_type", "action"], name="actionsubject_key")
        ]

    def __str__(self) -> str:
        return f"{self.subject_type} {self.subject_id} in action {self.action}"


class ActionSeal(models.Model):
    """A link of the chain over the operator actions: made after its transaction, kept for ever."""

    number = models.BigIntegerField(primary_key=True, help_text="1, 2, 3, … without a gap.")
    action = models.BigIntegerField(unique=True, help_text="The primary key of the action.")
    row_hash = models.CharField(max_length=64, help_text="SHA-256 of the action's columns.")
    acted_at = models.DateTimeField(help_text="When the action was recorded: retention may delete it some time later.")
    hash = models.CharField(max_length=64, help_text="SHA-256 of all of these and of the hash before.")
    floor = models.BigIntegerField(help_text="No action up to this key was awaited any more; not part of the hash.")

    def __str__(self) -> str:
        return f"seal {self.number} of action {self.action}"


class OperatorActionQuerySet(models.QuerySet):
    """Actions; each of these conditions has an index."""

    def newest_first(self) -> OperatorActionQuerySet:
        # InnoDB ends the index with the rising key: behind a falling time it must be read rising, too.
        return self.order_by("-created_at", "pk")

    def about(self, subject_type: str, subject_id: object, most: int = 50) -> OperatorActionQuerySet:
        """The newest `most` actions that had this row as their subject, alone or among others."""
        wanted = {"subject_type": subject_type, "subject_id": str(subject_id)}
        alone = self.filter(**wanted).newest_first().values_list("pk", flat=True)[:most]
        among = ActionSubject.objects.filter(**wanted).order_by("-action").values_list("action", flat=True)[:most]
        # Two short lists of keys: no planner reads two indexes for one OR.
        return self.filter(pk__in={*alone, *among}).newest_first()

    def unsealed(self, floor: int = 0) -> OperatorActionQuerySet:
        """Actions behind the key `floor` that no seal names."""
        seals = ActionSeal.objects.filter(action__gt=floor, action=OuterRef("pk"))
        return self.filter(pk__gt=floor).exclude(Exists(seals))


class OperatorAction(models.Model):
    """Who did what to which rows, and why: append-only, written in the transaction of the effect.

    The actor is a name and a number and no foreign key: nothing may change this row when an account is deleted.
    """

    actor_number = models.IntegerField(null=True, help_text="The account's primary key; null for a command.")
    actor_name = models.CharField(max_length=150, help_text="Kept when the user is gone; commands say so.")
    verb = models.CharField(max_length=50)
    subject = models.CharField(max_length=300)
    subject_type = IdentifierField(max_length=50, default="", help_text="The model, as `outbox.deadletter`.")
    subject_id = IdentifierField(max_length=150, default="", help_text="Its primary key; empty for several rows.")
    url = models.CharField(max_length=300, blank=True)
    reason = models.TextField()
    result = models.CharField(max_length=200)
    rows = models.IntegerField(default=1)
    detail = models.JSONField(default=dict)
    before = models.JSONField(null=True, help_text="The state of the subject before the action.")
    after = models.JSONField(null=True, help_text="Its state after the action.")
    created_at = models.DateTimeField()

    objects = OperatorActionQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["-created_at"], name="operatoraction_recent"),
            models.Index(fields=["actor_number", "-created_at"], name="operatoraction_who"),
            models.Index(fields=["actor_name", "-created_at"], name="operatoraction_name"),
            models.Index(fields=["subject_type", "-created_at"], name="operatoraction_what"),
            models.Index(fields=["subject_id", "subject_type", "-created_at"], name="operatoraction_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name}: {self.verb} {self.subject}"


class OfferedRight(models.Model):
    """A right that a role was given once after `migrate`: never again, whatever became of it."""

    role = models.CharField(max_length=50)
    right = models.CharField(max_length=150, help_text="As `outbox.requeue_deadletter`.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["role", "right"], name="offeredright_key")]

    def __str__(self) -> str:
        return f"{self.role}: {self.right}"
