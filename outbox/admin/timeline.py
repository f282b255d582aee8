"""The states of one message, as drawn on its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from config.admin import humanize, states
from outbox.messages.models import DeliveryAttempt, OutboxMessage


@dataclass(frozen=True)
class Stop:
    """One state in the drawing: where it stands, what is said of it, and whether the message is, or was, there."""

    name: str
    line: str
    x: int
    y: int
    width: int
    tone: str = ""  # of the state the message is in; empty elsewhere
    passed: bool = False


def timeline_of(row: OutboxMessage, attempts: Sequence[DeliveryAttempt], now: datetime) -> list[Stop]:
    """The six states, for a canvas of 820 by 176."""
    tone = states.STATES[row.state].tone
    here = "expired" if row.state == "cancelled" else row.state
    letter = "see its dead letter" if row.state == "dead_lettered" else "when tries are used up"
    stops = [
        ("pending", "Pending", _pending(row, now), 0, 20, 196),
        ("processing", "Processing", _processing(row, attempts, now), 300, 20, 196),
        ("sent", "Sent", _at(row.sent_at, now) or "not yet", 620, 20, 200),
        ("dead_lettered", "Dead letter", letter, 620, 76, 200),
        ("uncertain", "Uncertain", _uncertain(row), 620, 132, 200),
        ("expired", "Expired or cancelled", _expired(row, now), 0, 104, 196),
    ]
    passed = {"pending"} | ({"processing"} if attempts else set())
    return [
        Stop(name, line, x, y, width, tone if state == here else "", state in passed)
        for state, name, line, x, y, width in stops
    ]


def _pending(row: OutboxMessage, now: datetime) -> str:
    if row.state != "pending":
        return f"written {humanize.ago(row.created_at, now)}"
    return "due now" if row.available_at <= now else f"next try {humanize.ago(row.available_at, now)}"


def _processing(row: OutboxMessage, attempts: Sequence[DeliveryAttempt], now: datetime) -> str:
    if row.state == "processing" and row.lease_until:
        return f"lease ends {humanize.ago(row.lease_until, now)}"
    return humanize.plural(len(attempts), "try so far", "tries so far") if attempts else "not tried yet"


def _uncertain(row: OutboxMessage) -> str:
    if row.state == "uncertain":
        return "no answer came back"
    return humanize.plural(row.times_uncertain, "time", "times") if row.times_uncertain else "never"


def _expired(row: OutboxMessage, now: datetime) -> str:
    if row.state in ("expired", "cancelled"):
        return row.get_state_display().lower()
    return f"would expire {humanize.ago(row.expires_at, now)}"


def _at(when: datetime | None, now: datetime) -> str:
    return humanize.ago(when, now) if when else ""
