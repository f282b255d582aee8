"""Bearer tokens: who calls, whether the route is theirs, and whether they call too often."""

from __future__ import annotations

from django.http import HttpRequest
from ninja.security import HttpBearer

from config.telemetry.logs import bind
from notifications.api import tokens
from notifications.api.problems import Problem
from notifications.api.rate_limit import Allowance
from notifications.api.tokens import ApiToken

ALLOWANCE = Allowance()


class BearerToken(HttpBearer):
    """`request.auth` is the caller's ApiToken, whose `customer_id` says for whom it sends. Subclasses ask for more."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        caller = tokens.identify(token)
        if caller is None:
            return None
        wait = ALLOWANCE.wait(caller)
        if wait:
            raise Problem("rate_limited", retry_after=wait)
        bind(api_token=caller.prefix)
        self.admit(caller)
        tokens.touch(caller)
        return caller

    def admit(self, caller: ApiToken) -> None:
        """Raise Problem("forbidden") when the route is not for this caller."""


class OrderToken(BearerToken):
    """A token that belongs to no throttler customer: orders of everybody are none of a customer's business."""

    def admit(self, caller: ApiToken) -> None:
        if caller.customer_id:
            raise Problem("forbidden", "This token sends for a customer; orders need a token without one.")
