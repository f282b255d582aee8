"""Lanes of which the store has fewer rows than it was given: read again from the input, then they go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from throttler.lanes.lane import LaneState
from throttler.live.drain import Drain, Key
from throttler.live.partition import OwnedPartition
from throttler.overflow.store import LaneRange
from throttler.repair.rereading import Rereader, Suspect


class Repairs:
    """What the drain has suspended and the rereader has in hand. One thread."""

    def __init__(self, drain: Drain, rereader: Rereader) -> None:
        self.drain, self.rereader = drain, rereader
        self._asked: dict[Key, LaneRange] = {}

    def round(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Ask for what is suspended, take up what was repaired; returns the lanes that lost messages for good."""
        if self.drain.suspended.difference(self._asked):
            self._ask()
        changed = []
        while not self.rereader.found.empty():
            found = self.rereader.found.get()
            key = (found.lane.partition, found.lane.customer_id)
            if self._asked.get(key) is found.lane:
                del self._asked[key]
                changed += self._go_on(key, found.gone, now)
        return changed

    def forget(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        self._asked = {key: lane for key, lane in self._asked.items() if key[0] not in gone}

    def _ask(self) -> None:
        found = defaultdict(list)
        for key in self.drain.suspended.difference(self._asked):
            part, lane = self._find(key)
            if part and lane and lane.day:
                # Rows on their way to the store are no suspects.
                upto, backlog = part.readable_upto(lane), lane.backlog - lane.waits
                asked = LaneRange(part.number, lane.customer, part.topic_id, lane.drained, upto, lane.day, backlog)
                self._asked[key] = asked
                found[part.number].append(Suspect(asked, backlog, bool(lane.misplaced)))
        for suspects in found.values():
            self.rereader.ask(suspects)

    def _go_on(self, key: Key, gone: int, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        part, lane = self._find(key)
        self.drain.resume(key, now)
        if part is None or lane is None or not gone:
            return []
        lane.lose(gone)
        part.totals["lost"] += gone
        return [(part, lane)]

    def _find(self, key: Key) -> tuple[OwnedPartition | None, LaneState | None]:
        part = self.drain.parts.get(key[0])
        return part, part.lanes.get(key[1]) if part else None
