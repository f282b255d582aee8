"""Order within an aggregate: which messages may be sent, which wait, which may be sent together. Pure."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from outbox.channels.handlers import Message

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
