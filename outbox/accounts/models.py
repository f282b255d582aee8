"""Tables of what a person keeps for themselves: named views of lists, and the time zone of their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q

from config.fields import IdentifierField

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def seen_by(self, user: AbstractUser | AnonymousUser) -> SavedViewQuerySet:
        """A person's own ones, and those for everybody."""
        return self.filter(Q(owner_number=user.pk) | Q(shared=True))

    def of_list(self, label: str) -> SavedViewQuerySet:
        return self.filter(list=label).order_by("name", "pk")

    def of_person(self, number: int) -> SavedViewQuerySet:
        return self.filter(owner_number=number)


class SavedView(models.Model):
    """A list's filters under a name. A number and no foreign key names its owner; it is deleted with the account."""

    owner_number = models.IntegerField(help_text="The account's primary key.")
    owner_name = models.CharField(max_length=150)
    list = IdentifierField(max_length=100, help_text="The model of the list, as `outbox.deadletter`.")
    name = IdentifierField(max_length=80)
    query = models.CharField(max_length=1000, help_text="Of the list's address: only parameters that it knew.")
    shared = models.BooleanField(default=False, help_text="For everybody who may see the list.")
    created_at = models.DateTimeField()

    objects = SavedViewQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner_number", "list", "name"], name="savedview_name")]
        indexes = [models.Index(fields=["list", "name"], name="savedview_list")]
        permissions = [("keep_savedview", "Can save views"), ("share_savedview", "Can save views for everybody")]

    def __str__(self) -> str:
        return self.name


class ViewerZone(models.Model):
    """The time zone that a person chose for their pages; without a row it is UTC."""

    person = models.IntegerField(primary_key=True, help_text="The account's primary key.")
    zone = models.CharField(max_length=64, help_text="As `Europe/Berlin`.")

    class Meta:
        default_permissions = ()  # it is chosen on a page of its own, by whom it is about

    def __str__(self) -> str:
        return f"{self.zone} of account {self.person}"


def forget_person(sender: object, instance: models.Model, **_: object) -> None:
    """A receiver of `post_delete`: nothing of a deleted account stays."""
    SavedView.objects.of_person(instance.pk).delete()
    ViewerZone.objects.filter(pk=instance.pk).delete()
