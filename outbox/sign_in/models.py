"""Table of log-ins at the identity provider that last, with what is needed to ask it again."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from datetime import datetime, timedelta
from typing import Any, Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

from config.fields import IdentifierField

LEASE = timedelta(seconds=30)  # longer than all questions of one recheck together
KEPT = ("access_token", "refresh_token", "id_token")


class SignInQuerySet(models.QuerySet["SignIn"]):
    """Log-ins; a change of hands is one guarded UPDATE."""

    def lease(self, read: SignIn, now: datetime) -> bool:
        """Whether the caller asks the provider with the tokens that it has read: a refresh token is good for one question."""
        unchanged = self.filter(pk=read.pk, checked_at=read.checked_at, leased_until__lte=now)
        return unchanged.update(leased_until=now + LEASE) == 1

    def leased(self, key: str, now: datetime) -> Self:
        """The log-in as long as it is whoever leased it `now` that asks: who was frozen since then changes nothing."""
        return self.filter(pk=key, leased_until=now + LEASE)

    def keep(self, key: str, tokens: dict[str, Any], now: datetime) -> None:
        """At once: those of before may be good no more, whatever the provider answers next."""
        self.leased(key, now).update(sealed_tokens=seal(tokens))

    def checked(self, key: str, now: datetime) -> bool:
        """Whether the answer counts: it came under the lease of `now`."""
        return self.leased(key, now).update(checked_at=now, leased_until=now) == 1


class SignIn(models.Model):
    """A log-in, named by the session of its browser. Not in that session: two requests at once would put back an old token."""

    key = IdentifierField(max_length=43, primary_key=True)
    person = models.IntegerField(help_text="The account's primary key.")
    sealed_tokens = models.TextField(help_text="Encrypted: the provider's tokens.")
    checked_at = models.DateTimeField(help_text="When the provider was asked that said yes last.")
    leased_until = models.DateTimeField(help_text="Until then nobody else asks.")

    objects = SignInQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["checked_at"], name="signin_checked")]

    def __str__(self) -> str:
        return f"log-in of account {self.person}"

    @classmethod
    def begin(cls, person: int, tokens: dict[str, Any], now: datetime) -> Self:
        return cls.objects.create(
            key=secrets.token_urlsafe(32), person=person, sealed_tokens=seal(tokens), checked_at=now, leased_until=now
        )

    @property
    def tokens(self) -> dict[str, str]:
        """Empty where they were sealed with another SECRET_KEY, or are of another provider or client."""
        try:
            opened: dict[str, str] = json.loads(_keys().decrypt(self.sealed_tokens.encode()))
        except InvalidToken:
            return {}
        return opened


def seal(tokens: dict[str, Any]) -> str:
    kept = {name: tokens[name] for name in KEPT if isinstance(tokens.get(name), str)}
    return _keys().encrypt(json.dumps(kept).encode()).decode()


def _keys() -> MultiFernet:
    """No other provider is ever shown these tokens."""
    place = f"spillway.sign_in {settings.OIDC_ISSUER} {settings.OIDC_CLIENT_ID} "
    given = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    digests = [hashlib.sha256(f"{place}{key}".encode()).digest() for key in map(str, given)]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])


def sweep_sign_ins(now: datetime) -> int:
    """Delete log-ins whose session has ended long ago; returns how many."""
    oldest = now - timedelta(seconds=settings.SESSION_COOKIE_AGE + settings.OIDC_RECHECK_SECONDS)
    return SignIn.objects.filter(checked_at__lt=oldest).delete()[0]
