"""Delivery attempts: opened before a call whose outcome a crash could hide, closed with the message's next state."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from datetime import datetime

from config.database.rewrite import Rewrite
from config.database.upsert import Upsert, uuid_text
from config.uuid7 import uuid7
from outbox.channels.handlers import Message, Outcome
from outbox.messages.models import DeliveryAttempt

OPEN_COLUMNS = "id message_id number"
CONSTANTS = "channel lease_token path worker started_at finished_at"
OPEN = Upsert(
    DeliveryAttempt,
    columns=OPEN_COLUMNS,
    constants=f"{CONSTANTS} outcome error receipt",
    key="",
    update={},
)
CLOSED = Upsert(
    DeliveryAttempt,
    columns=f"{OPEN_COLUMNS} outcome error receipt",
    constants=CONSTANTS,
    key="",
    update={},
)
CLOSE = Rewrite(
    DeliveryAttempt,
    key="id",
    changes="outcome error receipt",
    constants="finished_at",
    guard="old.finished_at IS NULL",
    span="id",
)
# New at each start of the process: a host's name alone would hide a restart.
WORKER = f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
LONGEST_RECEIPT = 300


def open_attempts(
    messages: Sequence[Message], channel: str, token: uuid.UUID, path: str, now: datetime
) -> dict[uuid.UUID, str]:
    """Insert an attempt for each message about to be tried; returns `{message: attempt}`, committed."""
    made = {message.id: name for message, name in zip(messages, new_ids(len(messages)), strict=True)}
    OPEN.run(
        [(made[message.id], message.id.hex, message.attempts) for message in messages],
        {**_constants(channel, token, path, now, None), "outcome": "", "error": "", "receipt": ""},
    )
    return made


def close_attempts(results: Sequence[tuple[Message, Outcome]], opened: dict[uuid.UUID, str], now: datetime) -> None:
    rows = [(opened[message.id], *_words(outcome)) for message, outcome in results]
    CLOSE.run(rows, {"finished_at": now})


def write_closed(
    results: Sequence[tuple[Message, Outcome]],
    channel: str,
    token: uuid.UUID,
    path: str,
    started: datetime,
    now: datetime,
) -> None:
    """Insert the finished attempts of a batch that may be repeated without harm."""
    rows = [
        (name, message.id.hex, message.attempts, *_words(outcome))
        for name, (message, outcome) in zip(new_ids(len(results)), results, strict=True)
    ]
    CLOSED.run(rows, _constants(channel, token, path, started, now))


def new_ids(number: int) -> list[str]:
    """Version-7 UUIDs as hexadecimal digits: consecutive ones, because making each of its own takes 2 µs."""
    first = uuid7().int
    return [f"{first + step:032x}" for step in range(number)]


def _constants(
    channel: str, token: uuid.UUID, path: str, started: datetime, finished: datetime | None
) -> dict[str, object]:
    claimed = {"channel": channel, "lease_token": uuid_text(token), "path": path, "worker": WORKER}
    return {**claimed, "started_at": started, "finished_at": finished}


def _words(outcome: Outcome) -> tuple[str, str, str]:
    return outcome.kind, outcome.error, outcome.receipt[:LONGEST_RECEIPT]
