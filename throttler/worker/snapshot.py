"""What the mirror is told: lanes that wait or did within the hour, and counts of customers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from throttler.engine.admission import Decisions
from throttler.engine.drain import Drain
from throttler.engine.partition import OwnedPartition
from throttler.lanes.mirror import MirrorCounts, MirrorLane, MirrorPartition
from throttler.lanes.state import LaneState

HOUR_US = 3_600_000_000
CHARTED_US = 12 * HOUR_US  # after the last message over the rate
Key = tuple[int, str]


@dataclass
class PendingChanges:
    """What the mirror knows of a partition, and what it does not know yet."""

    complete: bool = True  # the next mirror is the first, and has to name every lane that waits
    whole: bool = False  # so has this one: an earlier one failed, and the database may be another one now
    waited: dict[str, int] = field(default_factory=dict)  # customers that had a backlog, and when, in µs
    # With the lane, as it may be forgotten before it is told; None: whatever lane the customer has then.
    changed: dict[str, LaneState | None] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)


class Snapshot:
    """Notes what committed transactions changed. One thread; the snapshots are for another."""

    def __init__(self, drain: Drain, process: str) -> None:
        self.drain, self.process = drain, process
        self._told: dict[int, PendingChanges] = {}

    def adopted(self, part: OwnedPartition, now: int) -> None:
        """Everything that waits has to be told once."""
        told = self._told[part.number] = PendingChanges()
        for lane in part.backlogged():
            told.waited[lane.customer] = now
            told.changed[lane.customer] = lane

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._told.pop(number, None)

    def committed(self, out: Decisions, now: int) -> None:
        """A transaction is final."""
        for part, lane in out.changed:
            told = self._told.get(part.number)
            if told is None:
                continue
            if lane.backlog:
                told.waited[lane.customer] = now
            if told.waited.get(lane.customer, 0) > now - HOUR_US:
                told.changed[lane.customer] = lane
        self._count(out)

    def snapshot(self, parts: Iterable[OwnedPartition], now: int) -> list[MirrorPartition]:
        """What has changed since the last snapshot, for each partition that has anything to tell."""
        return [self._of(part, told, now) for part in parts if (told := self._told.get(part.number))]

    def failed(self, lost: MirrorPartition) -> None:
        """The database did not take it: tell it again, with what came since."""
        if told := self._told.get(lost.number):
            told.complete |= lost.complete
            told.whole = True
            told.changed |= dict.fromkeys({lane.customer_id for lane in lost.lanes} - told.changed.keys())
            for one in lost.counts:
                told.counts.setdefault(one.customer_id, Counter()).update(
                    live=one.live, buffered=one.buffered, drained=one.drained, expired=one.expired
                )

    def _of(self, part: OwnedPartition, told: PendingChanges, now: int) -> MirrorPartition:
        if told.complete or told.whole:
            told.changed |= {lane.customer: lane for lane in part.backlogged()}
        stowed, part.stowed = part.stowed, set()
        told.changed |= dict.fromkeys((stowed & told.waited.keys()) - told.changed.keys())
        changed, told.changed = told.changed, {}
        counts, told.counts = told.counts, {}
        complete, told.complete = told.complete, False
        whole, told.whole = told.whole, False
        lanes = [self._lane(part, lane) for name, last in changed.items() if (lane := part.lanes.get(name) or last)]
        self._forget_old(told, now)
        return MirrorPartition(
            part.number, part.topic_id, part.epoch, part.committed, part.decided, dict(part.totals), lanes, complete,
            [self._counts(part, customer, found) for customer, found in counts.items()], whole, self.process,
            part.read if part.read < part.decided else None,
        )  # fmt: skip

    def _lane(self, part: OwnedPartition, lane: LaneState) -> MirrorLane:
        page = self.drain.pages.get((part.number, lane.customer))
        return MirrorLane.of(lane, page[0].created_us if page else None)

    def _counts(self, part: OwnedPartition, customer: str, found: Counter[str]) -> MirrorCounts:
        lane = part.lanes.get(customer)
        return MirrorCounts(customer, **found, backlog=lane.backlog if lane else 0)

    def _count(self, out: Decisions) -> None:
        for decoded in out.live:
            self._add(decoded.record.partition, decoded.message.customer_id, "live")  # type: ignore[union-attr]
        for _decoded, row in out.rows:
            self._add(row.partition, row.customer_id, "buffered")
        for part, row in out.drained:
            self._add(part.number, row.customer_id, "drained")
        for part, row, _reason in out.overdue:
            self._add(part.number, row.customer_id, "expired")

    def _add(self, number: int, customer: str, path: str) -> None:
        told = self._told.get(number)
        if told and customer in told.waited:
            told.counts.setdefault(customer, Counter())[path] += 1

    @staticmethod
    def _forget_old(told: PendingChanges, now: int) -> None:
        """Those who were not over their rate for twelve hours; dictionaries keep the order of the first time."""
        old = [customer for customer, at in told.waited.items() if at < now - CHARTED_US]
        for customer in old:
            del told.waited[customer]
