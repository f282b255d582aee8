"""Step 1 of the claim: reads due messages as tuples, and which of them the order of an aggregate lets go."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from django.db.models import F, QuerySet
from django.db.models.expressions import CombinedExpression

from config.database.queries import compiled, through
from config.fields import uuid7
from outbox.channels.handlers import Message
from outbox.messages.models import MessageQuerySet, OutboxMessage, first_unfinished_day, tomorrow

# -- Reads messages as tuples, and only from the day of the oldest unfinished one on -------------------------
LOWER_BOUND_SECONDS = 3.0
DUE, PRIMARY = "outboxmessage_due", "PRIMARY"
Found = TypeVar("Found")
COLUMNS: list[str | CombinedExpression] = [
    F("attempts") + 1 if name == "attempts" else name for name in Message._fields
]


def read_messages(rows: MessageQuerySet) -> list[Message]:
    """The rows as handlers get them; `attempts` includes the one that is about to begin."""
    return list(map(Message._make, rows.values_list(*COLUMNS)))


@compiled
def _due(
    channel: str, now: datetime, lowest: uuid.UUID, before: uuid.UUID, size: int
) -> QuerySet[OutboxMessage, object]:
    rows = OutboxMessage.objects.due(channel, now).from_id(lowest, before)
    return rows.locked()[:size].values_list(*COLUMNS)


def lock_due(channel: str, now: datetime, lowest: uuid.UUID, size: int) -> list[Message]:
    """Up to `size` due messages, locked."""
    with through(OutboxMessage, DUE):
        return list(map(Message._make, _due(channel=channel, now=now, lowest=lowest, before=tomorrow(), size=size)))


def is_due(channel: str, now: datetime) -> bool:
    """Whether a claim would look at a message; it locks none."""
    return OutboxMessage.objects.due(channel, now).from_id(lower_bound.read(), tomorrow()).exists()


def lock_among(ids: Sequence[uuid.UUID], channel: str, now: datetime, lowest: uuid.UUID, size: int) -> list[Message]:
    """Up to `size` of these messages, locked, if they are due; no other row is locked, not even for a moment."""
    if not ids:
        return []
    rows = OutboxMessage.objects.due(channel, now).from_id(lowest).among(ids)
    with through(OutboxMessage, PRIMARY):
        return read_messages(rows.locked()[:size])


def find_due(rows: QuerySet[OutboxMessage, Found]) -> list[Found]:
    """Rows of `due`, not locked: claims skip what is locked, so whoever looks for a few of them locks these only."""
    with through(OutboxMessage, DUE, rows.db):
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


# -- Order within an aggregate: which messages may be sent, which wait, which may be sent together. Pure -----
LOOK_AGAIN = timedelta(seconds=0.5)


class Obstacle(NamedTuple):
    """An unfinished message that later ones of its aggregate wait for."""

    aggregate: str
    id: uuid.UUID
    state: str
    available_at: datetime

    def over_at(self, now: datetime) -> datetime:
        """When to look again: at the time of its retry or decision, otherwise soon."""
        waits = self.state != "processing" and self.available_at > now
        return self.available_at if waits else now + LOOK_AGAIN


def choose(
    candidates: Sequence[Message], unfinished: Sequence[Obstacle], now: datetime
) -> tuple[list[Message], list[tuple[Message, datetime]]]:
    """Candidates that may be sent, because all earlier messages of their aggregate are candidates, too; and the
    others, each with the time it is put off to. Otherwise 500 messages behind a stuck one would fill every claim.
    """
    if not unfinished:
        return list(candidates), []
    mine = {message.id for message in candidates}
    first: dict[str, Obstacle] = {}
    for obstacle in unfinished:
        known = first.get(obstacle.aggregate)
        if obstacle.id not in mine and (known is None or obstacle.id < known.id):
            first[obstacle.aggregate] = obstacle
    chosen: list[Message] = []
    put_off: list[tuple[Message, datetime]] = []
    for message in candidates:
        ahead = first.get(message.aggregate)
        if ahead is None or message.id < ahead.id or message.times_revived:
            chosen.append(message)
        else:
            put_off.append((message, ahead.over_at(now)))
    return chosen, put_off


def in_waves(messages: Sequence[Message]) -> list[list[Message]]:
    """Groups that may be sent at once: each holds at most one message of an aggregate, older ones come first."""
    by_aggregate: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        by_aggregate[message.aggregate].append(message)
    if len(by_aggregate) == len(messages):
        return [list(messages)] if messages else []
    waves: list[list[Message]] = []
    for chain in by_aggregate.values():
        for depth, message in enumerate(sorted(chain)):
            if depth == len(waves):
                waves.append([])
            waves[depth].append(message)
    return waves
