"""Lanes that stand: the store has fewer rows than it was given, or the broker refuses the next message."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from config.telemetry.logs import log
from throttler.lanes.lane import LaneState
from throttler.live.drain import Drain, Key
from throttler.live.partition import OwnedPartition
from throttler.overflow.store import LaneRange, OverflowRow
from throttler.repair.rereading import Buried, Rereader, Suspect


class Repairs:
    """What the drain has suspended and the rereader has in hand. One thread."""

    def __init__(self, drain: Drain, rereader: Rereader) -> None:
        self.drain, self.rereader = drain, rereader
        self._asked: dict[Key, LaneRange] = {}
        self._buried: dict[Key, OverflowRow] = {}  # on their way to the letters
        self._since: dict[Key, float] = {}  # when rows were missed, by the monotonic clock
        self.heard: Callable[[], float] = lambda: math.inf  # when the group was last known to have us

    def round(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Ask for what is suspended, take up what was repaired; returns the lanes that lost messages for good."""
        if self.drain.suspended.keys() - self._asked.keys():
            self._ask(self.heard())
        for key, row in self.drain.refused.items():
            if self._buried.get(key) is not row:
                self._buried[key] = row
                epoch = self.drain.parts[row.partition].epoch
                self.rereader.bury(row, self.drain.poisoned[row.partition, row.offset], epoch)
        changed = []
        while not self.rereader.found.empty():
            found = self.rereader.found.get()
            if isinstance(found, Buried):
                changed += self._pass_over(found.row, now)
                continue
            key = (found.lane.partition, found.lane.customer_id)
            if self._asked.get(key) is found.lane:
                del self._asked[key]
                changed += self._go_on(key, found.gone, now)
        return changed

    def _pass_over(self, row: OverflowRow, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        key = (row.partition, row.customer_id)
        if self._buried.get(key) is row:
            del self._buried[key]
        passed = self.drain.pass_over(key, row, now)
        return [passed] if passed else []

    def forget(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        self._asked = {key: lane for key, lane in self._asked.items() if key[0] not in gone}
        self._buried = {key: row for key, row in self._buried.items() if key[0] not in gone}
        self._since = {key: since for key, since in self._since.items() if key[0] not in gone}

    def _ask(self, heard: float) -> None:
        """Not before the group has said since that the lanes are ours: whoever slept misses what others have drained."""
        found = []
        for key in self.drain.suspended.keys() - self._asked.keys():
            if self._since.setdefault(key, time.monotonic()) >= heard:
                continue
            part, lane = self._find(key)
            if part and lane and lane.day:
                del self._since[key]
                had, expected = self.drain.suspended[key]
                log.error("overflow_rows_lost", customer=key[1], partition=key[0], found=had, expected=expected)
                # Rows on their way to the store are no suspects.
                upto, backlog = part.readable_upto(lane), lane.backlog - lane.waits
                asked = LaneRange(part.number, lane.customer, part.topic_id, lane.drained, upto, lane.day, backlog)
                self._asked[key] = asked
                found.append(Suspect(asked, backlog, bool(lane.misplaced), part.epoch))
        if found:
            self.rereader.ask(found)

    def _go_on(self, key: Key, gone: int, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        part, lane = self._find(key)
        changed = []
        if part and lane and gone:
            lane.lose(gone)
            part.totals["lost"] += gone
            changed = [(part, lane)]
        self.drain.resume(key, now)  # at last: it asks for a page of what waits then
        return changed

    def _find(self, key: Key) -> tuple[OwnedPartition | None, LaneState | None]:
        part = self.drain.parts.get(key[0])
        return part, part.lanes.get(key[1]) if part else None
