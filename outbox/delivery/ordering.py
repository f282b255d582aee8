"""Order within an aggregate: who may go, who waits for whom, and what may go together. Pure."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from outbox.channels.handlers import Message

LOOK_AGAIN = timedelta(seconds=0.5)


class Obstacle(NamedTuple):
    """An unfinished message of an aggregate."""

    aggregate: str
    id: uuid.UUID
    state: str
    available_at: datetime

    def over_at(self, now: datetime) -> datetime:
        """When it is worth looking again: a retry and a decision have their time, the rest is soon."""
        waits = self.state != "processing" and self.available_at > now
        return self.available_at if waits else now + LOOK_AGAIN


def choose(
    candidates: Sequence[Message], unfinished: Sequence[Obstacle], now: datetime
) -> tuple[list[Message], list[tuple[Message, datetime]]]:
    """Candidates whose every predecessor is a candidate, too; and the others, each with the time it is put off to.

    Putting them off is what keeps 500 messages behind one that is stuck from filling every claim.
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
    """Groups that may be sent at once: at most one message of an aggregate in each, the older in an earlier one."""
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
