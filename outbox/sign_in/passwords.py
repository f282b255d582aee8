"""Where PASSWORD_LOGIN is off: one account has a password that opens it, and whenever it does everybody sees that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse

from config.admin.levers import operator_of
from config.causes import Line
from config.flows import Need
from config.telemetry.logs import log_committed
from outbox.audit_log.actions import record
from outbox.audit_log.models import OperatorAction

VERB = "break_glass"
SHOWN = timedelta(hours=24)


class BreakGlassBackend(ModelBackend):
    """Passwords of nobody but the superuser whom BREAK_GLASS_ACCOUNT names."""

    def authenticate(self, request: HttpRequest | None, username: Any = None, password: Any = None, **more: Any) -> Any:
        # First the password: how long an answer takes says nothing about names.
        person = super().authenticate(request, username, password, **more)
        return person if isinstance(person, User) and _may_break_glass(person) else None


def _may_break_glass(person: User) -> bool:
    return person.is_superuser and person.get_username() == settings.BREAK_GLASS_ACCOUNT


def record_break_glass(sender: object, request: HttpRequest, user: User, **_: object) -> None:
    """A receiver of `user_logged_in`."""
    if settings.PASSWORD_LOGIN or not _may_break_glass(user):
        return
    record(operator_of(user), VERB, f"User {user}", reason="", result="logged in with the password",
           subject_type="auth.user", subject_id=user.pk)  # fmt: skip
    log_committed("break_glass_login", "warning", user=user.pk)


def break_glass_needs(now: datetime) -> Iterator[Need]:
    """A line on home for a day."""
    if settings.PASSWORD_LOGIN:
        return
    used = OperatorAction.objects.filter(verb=VERB, created_at__gt=now - SHOWN).newest_first()
    if at := used.values_list("created_at", flat=True).first():
        yield Need(
            "soon", "The break-glass account was used",
            "It needs no identity provider. Whoever used it says why, and changes its password.",
            reverse("admin:outbox_operatoraction_changelist"), "Show actions", since=at, rank=2, kind="sign_in",
            key=settings.BREAK_GLASS_ACCOUNT, runbook="sign-in.md#break-glass",
        )  # fmt: skip


def break_glass_diagnosis() -> Iterator[Line]:
    """What `doctor` says: is there a way in while the provider is away?"""
    if not settings.PASSWORD_LOGIN:
        name = settings.BREAK_GLASS_ACCOUNT
        person = User.objects.filter(username=name).first()
        able = bool(person and person.is_active and _may_break_glass(person) and person.has_usable_password())
        said = (
            f"{name} is a superuser with a password" if able else f"BREAK_GLASS_ACCOUNT: no superuser is called {name}"
        )
        yield Line("break-glass account", able, said)
