"""The log-in at the provider as Django sees it: a code of the callback becomes an account, or a refusal on record."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from config.database.clock import database_now
from config.openid import SignInRefused
from config.openid.id_token import verified
from config.openid.provider import provider
from outbox.sign_in.people import admit, record_refusal


class OpenIDBackend(OIDCAuthenticationBackend):
    """Takes the steps from the library, and what they ask and believe from us: it checks neither issuer nor audience."""

    get_user = ModelBackend.get_user  # who is not active is nobody

    def __init__(self) -> None:
        """Django makes one for each question about a right: it must ask nobody."""
        self.claims: dict[str, Any] = {}

    def authenticate(self, request: HttpRequest, *, nonce: str, code_verifier: str) -> User | None:
        """None, which Django tells django-axes, for whoever is refused; `request.sign_in_refusal` says why.

        Raises ProviderUnavailable. Its parameters have names: a form with a password never comes here.
        """
        self.OIDC_RP_CLIENT_ID, self.OIDC_RP_CLIENT_SECRET = provider().client, provider().secret
        try:
            person: User | None = super().authenticate(request, nonce=nonce, code_verifier=code_verifier)
        except SignInRefused as refusal:
            with transaction.atomic():
                record_refusal(refusal, self.claims)
            request.__dict__["sign_in_refusal"] = refusal
            return None
        return person

    def get_token(self, payload: dict[str, str]) -> dict[str, Any]:
        self.request.__dict__["sign_in_asked_at"] = database_now()
        tokens = provider().tokens(payload)
        self.request.__dict__["sign_in_tokens"] = tokens
        return tokens

    def verify_token(self, token: object, **given: str) -> dict[str, Any]:
        self.claims = verified(token, provider(), given["nonce"] or "")
        return self.claims

    def get_or_create_user(self, access_token: object, id_token: object, payload: dict[str, Any]) -> User:
        self.claims = told(access_token, payload)
        return admit(self.claims)


def told(access_token: object, claims: dict[str, Any]) -> dict[str, Any]:
    """What the provider says now of the subject of an ID token, or of whose access token it is. Raises SignInRefused.

    Of what both say, userinfo is newer.
    """
    if not isinstance(access_token, str):
        raise SignInRefused("the provider gave no access token")
    said = provider().userinfo(access_token)
    if not isinstance(said.get("sub"), str) or said["sub"] != claims.get("sub", said["sub"]):
        raise SignInRefused("userinfo is about somebody else (sub)")
    return {**claims, **said}
