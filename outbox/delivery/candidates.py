"""Reads messages as tuples, and only from the day of the oldest unfinished one on."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet

from config.database.compiled import compiled
from config.database.index_hint import through
from config.database.rows import fast_rows
from config.uuid7 import uuid7
from outbox.channels.handlers import Message
from outbox.messages.models import OutboxMessage
from outbox.messages.queries import MessageQuerySet, first_unfinished_day, tomorrow

LOWER_BOUND_SECONDS = 3.0
DUE, PRIMARY = "outboxmessage_due", "PRIMARY"
COLUMNS: list[Any] = [F("attempts") + 1 if name == "attempts" else name for name in Message._fields]


def read_messages(rows: MessageQuerySet) -> list[Message]:
    """The rows as handlers get them; `attempts` includes the one that is about to begin."""
    return [Message._make(row) for row in fast_rows(rows.values_list(*COLUMNS))]


@compiled
def _due(channel: str, now: datetime, lowest: uuid.UUID, before: uuid.UUID, size: int) -> QuerySet[Any, Any]:
    rows = OutboxMessage.objects.due(channel, now).from_id(lowest, before)
    return rows.locked()[:size].values_list(*COLUMNS)


def lock_due(channel: str, now: datetime, lowest: uuid.UUID, size: int) -> list[Message]:
    """Up to `size` due messages, locked."""
    with through(OutboxMessage, DUE):
        found = _due(channel=channel, now=now, lowest=lowest, before=tomorrow(), size=size)
    return [Message._make(row) for row in found]


def lock_among(ids: Sequence[uuid.UUID], channel: str, now: datetime, lowest: uuid.UUID, size: int) -> list[Message]:
    """Up to `size` of these messages, locked, if they are due; no other row is locked, not even for a moment."""
    if not ids:
        return []
    rows = OutboxMessage.objects.due(channel, now).from_id(lowest).among(ids)
    with through(OutboxMessage, PRIMARY):
        return read_messages(rows.locked()[:size])


def find_due(rows: QuerySet[Any, Any]) -> list[Any]:
    """Rows of `due`, not locked: claims skip what is locked, so whoever looks for a few of them locks these only."""
    with through(OutboxMessage, DUE):
        return list(rows)


class LowerBound:
    """The day of the oldest unfinished message: claims look no further back, so old partitions cost nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: uuid.UUID | None = None
        self._read_at = 0.0

    def read(self) -> uuid.UUID:
        """Read again every few seconds, because an old dead letter may have been requeued."""
        with self._lock:
            if self._value is None or time.monotonic() - self._read_at > LOWER_BOUND_SECONDS:
                self._value, self._read_at = find_lower_bound(), time.monotonic()
            return self._value

    def forget(self) -> None:
        """Read again next time."""
        with self._lock:
            self._value = None


def find_lower_bound() -> uuid.UUID:
    """Clocks of hosts differ: on the border of two days the day before counts as today."""
    oldest = OutboxMessage.objects.order_by("id").values_list("id", flat=True).first()
    newest = uuid7()
    return first_unfinished_day(OutboxMessage.objects.all(), min(oldest or newest, newest), newest)


lower_bound = LowerBound()
