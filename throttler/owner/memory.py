"""Lanes that nobody needs any more: a fresh one would decide the same, so it is forgotten, here and in the changelog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from throttler.lanes.lane import LaneState
from throttler.limits.limiter import recovered
from throttler.live.partition import OwnedPartition

QUIET_US = 30_000_000  # of a lane that is forgotten: one that comes and goes is not worth a tombstone each time
SECOND_US = 1_000_000
SECONDS = 30  # in which each lane is looked at once


class LaneMemory:
    """Looks at a thirtieth of the lanes a second."""

    def __init__(self, parts: Mapping[int, OwnedPartition]) -> None:
        self.parts = parts
        self._next_us = 0
        self._left: list[tuple[OwnedPartition, str]] = []
        self._share = 0
        self._more: list[tuple[OwnedPartition, str]] = []

    def forget(self, part: OwnedPartition, keys: Iterable[bytes]) -> None:
        """Lanes of the changelog that do not count any more."""
        self._more += [(part, key.decode()) for key in keys]
        part.touched |= bool(self._more)

    def forgotten(self, now: int) -> list[tuple[OwnedPartition, str]]:
        """Forget what a second's share of the lanes has to be forgotten; the transaction in hand says so."""
        more = [(part, key) for part, key in self._more if self.parts.get(part.number) is part]
        self._more = []
        if now < self._next_us:
            return more
        self._next_us = now + SECOND_US
        if not self._left:
            self._left = [(part, customer) for part in self.parts.values() for customer in part.lanes]
            self._share = len(self._left) // SECONDS + 1
        looked, self._left = self._left[: self._share], self._left[self._share :]
        found = [(part, customer) for part, customer in looked if self._is_idle(part, customer, now)]
        for part, customer in found:
            del part.lanes[customer]
            part.touched = True
        return [*more, *found]

    def _is_idle(self, part: OwnedPartition, customer: str, now: int) -> bool:
        lane = part.lanes.get(customer)
        return self.parts.get(part.number) is part and lane is not None and _nothing_to_remember(lane, now)


def _nothing_to_remember(lane: LaneState, now: int) -> bool:
    quiet = lane.limiter.tat + QUIET_US <= now and recovered(lane.limiter, now)
    # A lane that the transaction in hand logs is not forgotten by the same one.
    return quiet and not lane.backlog and not lane.changed and not lane.waits
