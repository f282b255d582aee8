"""Roles: made after `migrate`, because before it their rights do not exist, and never changed back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps as installed
from django.contrib.auth.models import Group, Permission
from django.db import transaction

from config.admin.levers import LOOKED_AT, NOT_LOOKED_AT, ROLES, VIEW
from outbox.audit_log.models import OfferedRight


def make_roles(sender: Any, using: str, apps: Any = installed, **_: object) -> None:
    """A receiver of `post_migrate`: offer each role the rights that it was never offered.

    What somebody took away, or a role that somebody deleted, does not come back. A group that had the name of a role
    before stays as it is.
    """
    if sender.label == _last_app() and "offeredright" in apps.all_models["outbox"]:
        with transaction.atomic(using=using):
            offer_rights()


def _last_app() -> str:
    """Only after the last app every right is there."""
    return [config.label for config in installed.get_app_configs() if config.models_module][-1]


def offer_rights() -> None:
    """Make the roles that are new, and give each its new rights."""
    rights = _existing_rights()
    offered = set(OfferedRight.objects.values_list("role", "right"))
    known_roles = {role for role, _ in offered}
    new = [(role, right) for role, right in _wanted(rights) if (role, right) not in offered]
    groups = {group.name: group for group in Group.objects.filter(name__in=ROLES)}
    missing = [Group(name=role) for role in ROLES if role not in known_roles and role not in groups]
    made = {group.name: group for group in Group.objects.bulk_create(missing)}
    if missing:
        made = {group.name: group for group in Group.objects.filter(name__in=made)}
    OfferedRight.objects.bulk_create(OfferedRight(role=role, right=right) for role, right in new)
    # Neither a role that was deleted, nor somebody's own group that has its name.
    receiving = made | {name: group for name, group in groups.items() if name in known_roles}
    given = [
        Group.permissions.through(group_id=receiving[role].pk, permission_id=rights[right])
        for role, right in new
        if role in receiving
    ]
    Group.permissions.through.objects.bulk_create(given, ignore_conflicts=True)


def _existing_rights() -> dict[str, int]:
    """The rights on our tables: `app.codename` and primary key."""
    fields = ("content_type__app_label", "codename", "pk")
    found = Permission.objects.filter(content_type__app_label__in=LOOKED_AT).order_by("pk").values_list(*fields)
    return {f"{app}.{codename}": pk for app, codename, pk in found}


def _wanted(rights: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(role, right) for each right that exists; VIEW stands for many."""
    looked_at = [model._meta for model in installed.get_models() if model._meta.model_name not in NOT_LOOKED_AT]
    viewing = [right for right in (f"{one.app_label}.view_{one.model_name}" for one in looked_at) if right in rights]
    for role, named in ROLES.items():
        for right in [*(right for right in named if right in rights), *(viewing if VIEW in named else ())]:
            yield role, right
