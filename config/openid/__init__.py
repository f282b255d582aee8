"""OpenID Connect without tables: the provider that OIDC_ISSUER names, and whether its ID tokens can be believed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec

from django.conf import settings

from config.environment.env import BadSetting


class SignInRefused(Exception):
    """Somebody is not let in; the text, a part of a sentence, says why, and repeats nothing that is not proven."""


class ProviderUnavailable(Exception):
    """Nobody can be asked now: the provider is away, or refuses us. The text begins with the setting to look at."""


def require_fitting(roles: Collection[str]) -> None:
    """Raises BadSetting with the first of what does not fit; `roles` are all that `migrate` makes."""
    for misfit in _misfits(roles):
        raise BadSetting(misfit)


def _misfits(roles: Collection[str]) -> Iterator[str]:
    """Settings of logins that cannot be meant together; each text begins with the one to change."""
    if not settings.OIDC_ISSUER:
        if not settings.PASSWORD_LOGIN:
            yield "PASSWORD_LOGIN: off needs OIDC_ISSUER: nobody but the break-glass account could log in"
        return
    for name in ("OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET"):
        if not getattr(settings, name):
            yield f"{name}: is empty; OIDC_ISSUER needs it"
    if "openid" not in settings.OIDC_SCOPES.split():
        yield "OIDC_SCOPES: openid is not among them"
    if not find_spec("mozilla_django_oidc"):
        yield "OIDC_ISSUER: needs the package mozilla-django-oidc (pip install 'spillway[oidc]')"
    for group, role in settings.OIDC_ROLES:
        if role not in roles:
            yield f"OIDC_ROLES: {group}={role}: there is no such role; there are {', '.join(roles)}"
