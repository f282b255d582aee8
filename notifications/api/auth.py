"""Bearer tokens: identify the caller, check the route, limit the rate."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer

from config.telemetry.logs import bind
from notifications.api import tokens
from notifications.api.rate_limit import Allowance
from notifications.api.tokens import ApiToken
from outbox.api.problems import Problem

ALLOWANCE = Allowance()


class BearerToken(HttpBearer):
    """`request.auth` is the caller's ApiToken; it sends for the customer `customer_id`. Subclasses check more."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        caller = tokens.identify(token)
        if caller is None:
            return None
        if caller.is_expired(timezone.now()):
            told = f"The token expired at {caller.expires_at:%Y-%m-%d %H:%M:%S} UTC. Ask for a new one."
            raise Problem("token_expired", told, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
        wait = ALLOWANCE.wait(caller)
        if wait:
            raise Problem("rate_limited", retry_after=wait)
        bind(api_token=caller.prefix)
        self.admit(caller)
        tokens.touch(caller)
        return caller

    def admit(self, caller: ApiToken) -> None:
        """Raise Problem("forbidden") if this caller may not use the route."""


class OrderToken(BearerToken):
    """Accepts tokens without a customer only: a throttler customer must not see everybody's orders."""

    def admit(self, caller: ApiToken) -> None:
        if caller.customer_id:
            raise Problem("forbidden", "This token sends for a customer; orders need a token without one.")
