"""The next state of a message after a try. Pure, so that each rule is a table in a test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from config.database.retry import full_jitter
from config.database.upsert import timestamp_text
from config.kafka import Replayed
from outbox.channels.handlers import Message, Outcome
from outbox.letters.burial import Letter
from outbox.messages.models import FLOW

CRASHES = 5  # tries beyond the last retry after which a message is assumed to kill its workers
UNREACHABLE_WAIT = 1.0  # seconds; after a few of them the breaker takes over

# Outcomes without an answer about the message: the attempt is given back.
FREE = frozenset({"unreachable", "throttled", "auth"})


@dataclass(frozen=True)
class Limits:
    """How often and how long a message is tried; seconds."""

    max_retries: int
    base: float
    cap: float
    reconcile: float

    @property
    def attempts(self) -> int:
        return 1 + self.max_retries


def limits() -> Limits:
    return Limits(
        settings.OUTBOX_MAX_RETRIES,
        settings.OUTBOX_BACKOFF_BASE_SECONDS,
        settings.OUTBOX_BACKOFF_CAP_SECONDS,
        settings.OUTBOX_RECONCILE_SECONDS,
    )


class NextState(NamedTuple):
    """The next state of a message: the columns to write, and whether it becomes a dead letter.

    Computed here and never in SQL: MySQL evaluates SET from left to right, so a CASE over a column of the same
    UPDATE means something else there.
    """

    state: str
    attempts: int
    available_at: datetime
    times_uncertain: int
    error_class: str
    error: str
    letter: str = ""  # last: the reason of a dead letter; empty: none

    @property
    def ends(self) -> bool:
        """Whether successors of the aggregate may go."""
        return self.state in ("sent", "dead_lettered")


CHANGES = " ".join(NextState._fields[:-1])  # all but the letter


def row_of(message: Message, after: NextState) -> list[str | int]:
    """The message's id, then the values of `CHANGES`."""
    values = (timestamp_text(value) if isinstance(value, datetime) else value for value in after[:-1])
    return [message.id.hex, *values]


def next_state(
    message: Message, outcome: Outcome, now: datetime, rules: Limits, fraction: float | None = None
) -> NextState:
    """The next state of a message that was not sent; `fraction` (0 … 1) replaces the random part of the backoff."""
    attempts = message.attempts - (outcome.kind in FREE)
    state, at, letter = "pending", message.available_at, ""
    uncertain = message.times_uncertain
    if outcome.kind == "permanent":
        state, letter = "dead_lettered", outcome.reason or "refused"
    elif outcome.kind == "ambiguous":
        state, uncertain, at = "uncertain", uncertain + 1, now + timedelta(seconds=rules.reconcile)
    elif outcome.kind == "unreachable":
        at = now + timedelta(seconds=full_jitter(1, base=UNREACHABLE_WAIT, cap=UNREACHABLE_WAIT, fraction=fraction))
    elif outcome.kind == "transient":
        if attempts >= rules.attempts:
            state, letter = "dead_lettered", "max_retries"
        else:
            at = now + wait_after(attempts, outcome, rules, fraction)
    at = min(at, message.expires_at) if state == "pending" else at
    return NextState(state, attempts, at, uncertain, outcome.kind, outcome.error, letter)


def wait_after(attempts: int, outcome: Outcome, rules: Limits, fraction: float | None) -> timedelta:
    """At least as long as the other side wants (greylisting: minutes), and full jitter beyond it."""
    jitter = full_jitter(attempts, base=rules.base, cap=rules.cap, fraction=fraction)
    share = share_of(outcome.retries_last, attempts, rules.max_retries)
    return timedelta(seconds=max(share, outcome.least_wait, outcome.retry_after) + jitter)


def share_of(seconds: float, retry: int, retries: int) -> float:
    """What a retry (1 is the first) waits of the time that all of them last: each three times as long as the one before."""
    return seconds * 3**retry / sum(3**each for each in range(1, retries + 1))


def letter_of(channel: str, message: Message, step: str, reason: str, error: str, now: datetime) -> Letter:
    """The dead letter of a message; each revival may bury it once more."""
    named = {**message.headers, "channel": channel}
    headers = [(name, value.encode()) for name, value in named.items() if value]
    key, payload = message.aggregate.encode(), message.payload.encode()
    record = Replayed("", -1, message.attempts, int(now.timestamp() * 1000), key, payload, headers)
    pk, revision = str(message.id), message.times_revived
    return Letter(FLOW, step, reason, error, record, pk, revision, business_key=message.aggregate)
