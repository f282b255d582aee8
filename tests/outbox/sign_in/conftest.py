"""A provider, settings that name it, and somebody's browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.sign_in.models import SignIn
from tests.outbox.sign_in.provider import CLIENT, SECRET, LyingProvider

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@pytest.fixture
def provider(settings: Any, db: None) -> Iterator[LyingProvider]:
    with LyingProvider() as lying:
        settings.SECURE_SSL_REDIRECT = False
        settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = lying.issuer, CLIENT, SECRET
        settings.ROOT_URLCONF = "tests.outbox.sign_in.urls"
        axes, *others = settings.AUTHENTICATION_BACKENDS
        settings.AUTHENTICATION_BACKENDS = [axes, "outbox.sign_in.backends.OpenIDBackend", *others]
        at = settings.MIDDLEWARE.index(AUTHENTICATION) + 1
        recheck = "outbox.sign_in.recheck.Recheck"
        settings.MIDDLEWARE = [*settings.MIDDLEWARE[:at], recheck, *settings.MIDDLEWARE[at:]]
        yield lying


@pytest.fixture
def browser(provider: LyingProvider) -> Client:
    return Client()


def log_in(provider: LyingProvider, browser: Client, following: str = "/admin/") -> Any:
    """There and back; the answer to the callback."""
    there = browser.get("/oidc/authenticate/", {"next": following})
    assert there.status_code == 302, there.content
    return browser.get(provider.let_in(there.headers["Location"]))


def later(seconds: float) -> None:
    """The provider was asked so long ago."""
    SignIn.objects.update(checked_at=database_now() - timedelta(seconds=seconds))


def actions() -> list[tuple[str, str]]:
    """Verb and result of each operator action, oldest first."""
    return list(OperatorAction.objects.order_by("pk").values_list("verb", "result"))


def refusal(answer: Any) -> str:
    """Why, as the page says it."""
    assert answer.status_code == 403, answer.content
    return answer.context["why"]
