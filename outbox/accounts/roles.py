"""Roles: made after `migrate`, because before it their rights do not exist; and in words what roles and rights allow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from django.apps import apps as installed
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction

from config.admin.levers import LOOKED_AT, NOT_LOOKED_AT, ROLES, VIEW
from outbox.audit_log.models import OfferedRight


# -- Making them ---------------------------------------------------------------------------------------------
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
    new = [offer for offer in dict.fromkeys(_wanted(rights)) if offer not in offered]
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
    rights = Permission.objects.filter(content_type__app_label__in=LOOKED_AT).order_by("pk").values_list(*fields)
    return {f"{app}.{codename}": pk for app, codename, pk in rights}


def _wanted(rights: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(role, right) for each right that exists; VIEW stands for many."""
    looked_at = [model._meta for model in installed.get_models() if model._meta.model_name not in NOT_LOOKED_AT]
    viewing = [right for right in (f"{one.app_label}.view_{one.model_name}" for one in looked_at) if right in rights]
    for role, named in ROLES.items():
        for right in [*(right for right in named if right in rights), *(viewing if VIEW in named else ())]:
            yield role, right


# -- What they allow, in the words of somebody who gives them ------------------------------------------------
Rights = dict[str, str]  # `outbox.requeue_deadletter`: "requeue dead letters"
TRAIL = "outbox.view_operatoraction"
RANKED = list(dict.fromkeys(right for rights in ROLES.values() for right in rights))
MOST_TABLES = 6  # that are named; more are counted


def named(permissions: Iterable[Permission]) -> Rights:
    """Rights by their full name, with the words of their permission; the commonest first. Reads `content_type`."""
    words = {
        f"{right.content_type.app_label}.{right.codename}": right.name.removeprefix("Can ")
        for right in sorted(permissions, key=lambda right: right.pk)
    }
    ranks = {name: rank for rank, name in enumerate(RANKED)}
    return dict(sorted(words.items(), key=lambda item: ranks.get(item[0], len(ranks))))


def in_words(rights: Rights, *, besides: Collection[str] = ()) -> str:
    """`look at everything but the trail; requeue dead letters, take groups`; rights in `besides` are left out."""
    rest = {name: words for name, words in rights.items() if name not in besides}
    viewed, done = {name for name in rest if _views(name)}, [rest[name] for name in rest if not _views(name)]
    return "; ".join(filter(None, [_looked_at(viewed), ", ".join(done)]))


def _views(name: str) -> bool:
    return name.split(".")[1].startswith("view_") and name != "outbox.view_payload"


def _looked_at(viewed: set[str]) -> str:
    """What somebody with these rights sees."""
    options = [model._meta for model in installed.get_models()]
    tables = {f"{meta.app_label}.view_{meta.model_name}": str(meta.verbose_name_plural) for meta in options}
    everything = {
        f"{meta.app_label}.view_{meta.model_name}"
        for meta in options
        if meta.app_label in LOOKED_AT and meta.model_name not in NOT_LOOKED_AT and "view" in meta.default_permissions
    }
    if everything <= viewed:
        return "look at everything, and at the trail" if TRAIL in viewed else "look at everything but the trail"
    words = sorted(tables[name] for name in viewed if name in tables)
    if not words:
        return ""
    more = f" and {len(words) - MOST_TABLES} more" if len(words) > MOST_TABLES else ""
    return f"look at {', '.join(words[:MOST_TABLES])}{more}"


def roles_in_words(roles: Iterable[Group]) -> dict[int, str]:
    """By primary key, what each role allows as it is now: what another one allows is said by its name."""
    rights = {role: named(role.permissions.all()) for role in roles}
    return {role.pk: _role_in_words(role, rights) for role in rights}


def _role_in_words(role: Group, rights: dict[Group, Rights]) -> str:
    own = rights[role]
    if not own:
        return "Nothing: it has no rights."
    smaller = [other for other in rights if rights[other] and rights[other].keys() < own.keys()]
    if not smaller:
        return f"May {in_words(own)}."
    largest = max(smaller, key=lambda other: len(rights[other]))
    return f"May do what {largest.name} may, and {in_words(own, besides=rights[largest])}."


def all_that(user: User) -> str:
    """What a person may do with all roles and rights together, in a sentence."""
    if not user.is_active:
        return "Nothing: the account is not active."
    if user.is_superuser:
        return "Everything, and manage accounts and roles: a superuser."
    given = Permission.objects.filter(group__user=user) | Permission.objects.filter(user=user)
    rights = named(given.select_related("content_type").distinct())
    if not rights:
        return "Nothing yet: without a role there is nothing to see."
    return f"May {in_words(rights)}." + ("" if user.is_staff else " But may not log in here: “staff status” is off.")
