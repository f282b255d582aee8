"""The provider that OIDC_ISSUER names: what it says of itself, kept for an hour, and what it answers when it is asked."""

from __future__ import annotations

import base64
import json
import re
import time
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request

from django.conf import settings

from config.http import Unanswered, ask
from config.openid import ProviderUnavailable, SignInRefused
from config.telemetry.redaction import one_line

TIMEOUT = 5.0  # seconds, of one question
MOST_BYTES = 1_000_000  # of an answer
HOUR = 3600.0  # seconds for which an answer is kept
MINUTE = 60.0  # seconds after which keys without the wanted one are read again
MOMENT = 10.0  # seconds for which a provider that has answered is taken to be there, before a browser is sent to it
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
ERROR_CODE = re.compile(r"[\w.-]{1,60}")  # RFC 6749; the description beside it is not shown: it may repeat anything
SETTING_OF_ERROR = {"invalid_client": "OIDC_CLIENT_SECRET", "unauthorized_client": "OIDC_CLIENT_ID"}


class IdentityProvider:
    """One client of one provider; shared by all threads of a process. Each question raises ProviderUnavailable."""

    def __init__(self, issuer: str, client: str, secret: str, cafile: str) -> None:
        self.issuer, self.client, self.secret, self.cafile = issuer, client, secret, cafile
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}

    def entrance(self) -> str:
        """Where a browser is sent, if anybody is there."""
        return str(self._discovery(MOMENT)["authorization_endpoint"])

    def endpoint(self, name: str) -> str:
        """An address of the discovery document; empty where it has none of an optional one."""
        return str(self._discovery().get(name) or "")

    def keys(self, key_id: object) -> list[dict[str, Any]]:
        """The public keys that sign under this id, all where a token names none."""
        return self._keys(key_id, HOUR) or self._keys(key_id, MINUTE)

    def tokens(self, form: dict[str, str]) -> dict[str, Any]:
        """Tokens for a code, or for a refresh token. Raises SignInRefused where the provider does not take it any more."""
        methods = self._discovery().get("token_endpoint_auth_methods_supported") or ["client_secret_post"]
        login = {"client_id": self.client, "client_secret": self.secret}
        headers = {"Accept": "application/json"}
        if "client_secret_post" not in methods:
            pair = f"{quote(self.client, '')}:{quote(self.secret, '')}".encode()
            headers["Authorization"], login = f"Basic {base64.b64encode(pair).decode()}", {}
        request = Request(self.endpoint("token_endpoint"), urlencode({**form, **login}).encode(), headers)  # noqa: S310
        try:
            return self._answer(request)
        except HTTPError as error:
            code = _error_code(error)
            if code == "invalid_grant":
                raise SignInRefused("the provider says that this log-in is over (invalid_grant)") from None
            setting = SETTING_OF_ERROR.get(code, "OIDC_CLIENT_SECRET" if error.code == 401 else "OIDC_ISSUER")
            said = f"HTTP {error.code}, {code}" if code else f"HTTP {error.code}"
            raise ProviderUnavailable(f"{setting}: the provider gives no token ({said})") from None

    def userinfo(self, access_token: str) -> dict[str, Any]:
        """What the provider says of somebody now. Raises SignInRefused where the access token is over."""
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        try:
            return self._answer(Request(self.endpoint("userinfo_endpoint"), headers=headers))  # noqa: S310
        except HTTPError as error:
            if error.code in (401, 403):
                said = f"the provider says that this log-in is over (userinfo answers {error.code})"
                raise SignInRefused(said) from None
            raise ProviderUnavailable(f"OIDC_ISSUER: userinfo answers {error.code}") from None

    def look(self) -> str:
        """Who answers, for `doctor`."""
        self._kept.clear()
        found = self._keys(None, HOUR)
        if not found:
            raise ProviderUnavailable("OIDC_ISSUER: jwks_uri has no key that signs")
        return f"{self.issuer} answers, with {len(found)} keys"

    def _keys(self, key_id: object, life: float) -> list[dict[str, Any]]:
        found = self._document(self.endpoint("jwks_uri"), life).get("keys")
        signing = [key for key in found if isinstance(key, dict)] if isinstance(found, list) else []
        return [key for key in signing if key.get("use", "sig") == "sig" and key_id in (None, key.get("kid"))]

    def _discovery(self, life: float = HOUR) -> dict[str, Any]:
        document = self._document(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration", life)
        if (said := document.get("issuer")) != self.issuer:
            raise ProviderUnavailable(f"OIDC_ISSUER: the provider calls itself {one_text(said)}: write it so")
        for name in ENDPOINTS:
            if not _is_address(document.get(name), self.issuer):
                raise ProviderUnavailable(f"OIDC_ISSUER: the provider names no {name}, or one without https")
        return document

    def _document(self, url: str, life: float) -> dict[str, Any]:
        """What stands there, at most `life` seconds old."""
        read_at, document = self._kept.get(url, (-HOUR, {}))
        if not document or time.monotonic() - read_at > life:
            try:
                document = self._answer(Request(url, headers={"Accept": "application/json"}))  # noqa: S310
            except HTTPError as error:
                raise ProviderUnavailable(f"OIDC_ISSUER: {urlsplit(url).path} answers {error.code}") from None
            self._kept[url] = (time.monotonic(), document)
        return document

    def _answer(self, request: Request) -> dict[str, Any]:
        """An object of JSON. Raises HTTPError for what is not 2xx."""
        try:
            answer = json.loads(ask(request, timeout=TIMEOUT, most=MOST_BYTES, cafile=self.cafile))
        except HTTPError:
            raise
        except Unanswered as error:
            setting = "OIDC_CAFILE" if error.is_distrust else "OIDC_ISSUER"
            raise ProviderUnavailable(f"{setting}: the provider cannot be asked: {error}") from None
        except OSError as error:
            raise ProviderUnavailable(f"OIDC_CAFILE: the file that it names: {one_line(error)}") from None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ProviderUnavailable(f"OIDC_ISSUER: {urlsplit(request.full_url).path} is no object of JSON")
        return answer


def provider() -> IdentityProvider:
    """The one of the settings, with what is known of it."""
    return _provider(settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET, settings.OIDC_CAFILE)


@lru_cache(maxsize=1)
def _provider(issuer: str, client: str, secret: str, cafile: str) -> IdentityProvider:
    return IdentityProvider(issuer, client, secret, cafile)


def one_text(said: object) -> str:
    """What a stranger says, as far as it can be shown."""
    return said[:200] if isinstance(said, str) and said.isprintable() else "something else"


def _is_address(text: object, issuer: str) -> bool:
    """Whether it can be asked, and no worse protected than the issuer."""
    return isinstance(text, str) and text.startswith(("https://", f"{urlsplit(issuer).scheme}://")) and " " not in text


def _error_code(error: HTTPError) -> str:
    try:
        code = str(json.loads(error.read(MOST_BYTES))["error"])
    except (OSError, HTTPException, KeyError, TypeError, ValueError, RecursionError):
        return ""
    return code if ERROR_CODE.fullmatch(code) else ""
