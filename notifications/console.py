"""The one lever here: a token that nobody may use any more."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from config import words
from config.levers import Lever, Outcome
from notifications.tokens import ApiToken, revoke
from outbox.console import operator_of


def _revoke(keys: list[Any], user: Any, reason: str) -> Outcome:
    return Outcome(revoke(keys, operator_of(user), reason))


def _why_not(token: ApiToken) -> str:
    return f"Revoked {words.ago(token.revoked_at, timezone.now())} by {token.revoked_by}."


REVOKE = Lever(
    name="revoke", verb="Revoke", past="Revoked", icon="ban",
    right="revoke_apitoken", keep="Keep it",
    nouns=("token", "tokens"),
    promise="From the next request on it opens nothing.",
    detail="There is no way back: whoever still needs access gets a new token.",
    act=_revoke, ready=lambda rows: rows.filter(revoked_at=None), why_not=_why_not, harm=True, least=10,
)  # fmt: skip
