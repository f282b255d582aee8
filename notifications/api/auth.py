"""Who calls: the bearer token is looked up, the route checked, the rate of the token limited."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from django.db.models import F, Value
from django.db.models.functions import Greatest
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import HttpBearer

from config.database.clock import database_now
from config.telemetry.logs import bind
from notifications.api import tokens
from notifications.api.tokens import ApiToken
from outbox.api.problems import Problem


class CallerRequest(HttpRequest):
    """A request that BearerToken let in."""

    auth: ApiToken


class BearerToken(HttpBearer):
    """`request.auth` is the caller's ApiToken; it sends for the customer `customer_id`. Subclasses check more."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        caller = tokens.identify(token)
        if caller is None:
            return None
        if caller.is_expired(timezone.now()):
            detail = f"The token expired at {caller.expires_at:%Y-%m-%d %H:%M:%S} UTC. Ask for a new one."
            raise Problem("token_expired", detail, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
        wait = ALLOWANCE.wait(caller)
        if wait:
            raise Problem("rate_limited", retry_after=wait)
        bind(api_token=caller.prefix)
        self.admit(caller)
        tokens.touch(caller)
        return caller

    def admit(self, caller: ApiToken) -> None:
        """Raise Problem("forbidden") if this caller may not use the route."""


class ServiceToken(BearerToken):
    """Accepts tokens for orders only: who sends for a customer, or promises messages, must not see what is everybody's."""

    def admit(self, caller: ApiToken) -> None:
        if caller.customer_id:
            raise Problem("forbidden", "This token sends for a customer; this route needs one without.")
        if caller.channels:
            raise Problem("forbidden", "This token promises messages; this route needs one for orders.")


class ChannelToken(BearerToken):
    """Accepts tokens that may promise messages; for which channels, the route asks."""

    def admit(self, caller: ApiToken) -> None:
        if not caller.channels:
            raise Problem("forbidden", "This token promises no messages: it was made without channels.")


# -- The rate of a token -----------------------------------------------------------------------------------
# One bucket in the database for all processes, which draw from it in small blocks.
# The bucket is a single number, the moment at which it is full again (GCRA, the generic cell rate algorithm).
# A busy process draws several requests at once: a row written for each would slow every request.
SECOND = 1_000_000  # the bucket counts microseconds
BLOCK_SECONDS = 0.25  # how long a process may keep what it drew
SHARE = 10  # a block is at most this part of a second's allowance


@dataclass
class Block:
    """Requests that this process may let through without asking again."""

    size: int
    left: int
    until: float  # monotonic

    def next_size(self, rate: float, now: float) -> int:
        """The size of the next block: twice this one if it was used up in time, else what was used of it."""
        wanted = 2 * self.size if self.left <= 0 and now < self.until else self.size - max(self.left, 0)
        return max(1, min(wanted, int(rate / SHARE)))


class Allowance:
    """What this process may still let through, by token."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._lock = threading.Lock()

    def wait(self, token: ApiToken) -> float:
        """0 if the request may pass, else the seconds to wait before the next one."""
        rate = token.allowed_rate
        if not rate:
            return 0.0
        now = time.monotonic()
        with self._lock:
            block = self._blocks.get(token.pk)
            if block and block.left > 0 and now < block.until:
                block.left -= 1
                return 0.0
            size = block.next_size(rate, now) if block else 1
        if size > 1 and not draw(token.pk, rate, size):
            self._keep(token.pk, size, now)
            return 0.0
        wait = draw(token.pk, rate, 1)
        if not wait:
            self._keep(token.pk, 1, now)
        return wait

    def _keep(self, token_id: int, size: int, now: float) -> None:
        with self._lock:
            self._blocks[token_id] = Block(size, size - 1, now + BLOCK_SECONDS)


ALLOWANCE = Allowance()


def draw(token_id: int, rate: float, number: int) -> float:
    """Take `number` requests from the bucket, which holds a second's worth and at least one. 0, or seconds to wait."""
    now = int(database_now().timestamp() * SECOND)
    cost = SECOND / rate
    latest = now + int((max(rate, 1.0) - number) * cost)  # full later than this, it holds fewer now
    rows = ApiToken.objects.filter(pk=token_id)
    taken = rows.filter(full_at__lte=latest).update(full_at=Greatest(F("full_at"), Value(now)) + int(number * cost))
    if taken:
        return 0.0
    full_at = rows.values_list("full_at", flat=True).first()
    return max(0.001, ((full_at or now) - latest) / SECOND)
