"""The account and the roles of somebody whom the provider knows; what changes is an operator action.

A person is an issuer and a subject and nothing else: a name or an address at the provider may be given to somebody else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import transaction

from config.admin.levers import Operator, operator_of
from config.openid import SignInRefused
from config.telemetry.logs import log_committed
from outbox.audit_log.actions import record


class NoRole(SignInRefused):
    """The provider has answered, and gives no role."""


PREFIX = "oidc-"  # of the user names of people whom the provider knows
ACCOUNT = "auth.user"  # what the actions are about
LONGEST_NAME = 150
Claims = Mapping[str, Any]


def username_of(subject: str) -> str:
    """The user name of a subject of the provider."""
    return f"{PREFIX}{hashlib.sha256(f'{settings.OIDC_ISSUER} {subject}'.encode()).hexdigest()[:40]}"


def is_of_provider(user: User) -> bool:
    """Whether the provider lets this person in, and no password does."""
    return user.get_username().startswith(PREFIX) and not user.has_usable_password()


def admit(claims: Claims) -> User:
    """The account of a subject, made at its first log-in, with exactly the roles of its groups. Raises SignInRefused."""
    roles = _roles_of(claims)
    with transaction.atomic():
        unlike_any = {"password": make_password(None), "is_staff": True}
        username = username_of(claims["sub"])
        person, made = User.objects.get_or_create(username=username, defaults=unlike_any)
        person = User.objects.select_for_update().get(pk=person.pk)
        if person.is_superuser or not is_of_provider(person):
            raise SignInRefused("the account is a superuser's, or has a password: no log-in at the provider opens it")
        if not person.is_active:
            raise SignInRefused("the account is not active here")
        groups = Group.objects.filter(name__in=roles)
        if not groups:
            raise SignInRefused(f"nobody has the role {roles[0]} any more: it was deleted")
        before, after = _state_of(person), {"roles": sorted(group.name for group in groups)}
        person.first_name, person.last_name, person.is_staff = _name_of(claims), "", True
        person.save(update_fields=["first_name", "last_name", "is_staff"])
        if before != after:
            person.groups.set(groups)
            record(
                operator_of(person), "first_sign_in" if made else "change_roles", f"User {person}",
                reason="", result="as the groups at the identity provider say", subject_type=ACCOUNT,
                subject_id=person.pk, before=None if made else before, after=after, detail=_identity(claims),
            )  # fmt: skip
    return person


def record_refusal(refusal: SignInRefused, claims: Claims, person: User | None = None) -> None:
    """An operator action; whoever has no role any more loses those of before. `claims` are proven ones, or empty."""
    if person is None and claims:
        person = User.objects.filter(username=username_of(claims["sub"])).first()
    before: object = None
    after: object = None
    if person and isinstance(refusal, NoRole) and is_of_provider(person) and not person.is_superuser:
        before, after = _state_of(person), {"roles": []}
        person.groups.clear()
        User.objects.filter(pk=person.pk).update(is_staff=False)  # nothing is sent to them either
    record(
        operator_of(person) if person else Operator(_name_of(claims) or "somebody at the identity provider"),
        "refuse_sign_in", f"User {person}" if person else "Log-in at the identity provider", reason="",
        result=str(refusal), rows=0, subject_type=ACCOUNT, subject_id=person.pk if person else "",
        before=before, after=after, detail=_identity(claims),
    )  # fmt: skip
    log_committed("sign_in_refused", "warning", why=str(refusal), user=person.pk if person else None)


def _state_of(person: User) -> dict[str, list[str]]:
    return {"roles": sorted(person.groups.values_list("name", flat=True))}


def _roles_of(claims: Claims) -> list[str]:
    claim = settings.OIDC_GROUPS_CLAIM
    groups = claims.get(claim)
    if groups is None:
        raise NoRole(f"the provider does not say in which groups (no “{claim}”)")
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise NoRole(f"the provider's “{claim}” is no list of texts")
    roles = [role for group, role in settings.OIDC_ROLES if group in groups]
    if not roles:
        raise NoRole("none of the groups has a role here")
    return roles


def _name_of(claims: Claims) -> str:
    """What the provider calls somebody; for eyes only."""
    names = (claims.get(claim) for claim in ("name", "preferred_username"))
    return next((name[:LONGEST_NAME] for name in names if isinstance(name, str) and name and name.isprintable()), "")


def _identity(claims: Claims) -> dict[str, str]:
    return {"issuer": settings.OIDC_ISSUER, "subject": claims["sub"]} if claims else {}
