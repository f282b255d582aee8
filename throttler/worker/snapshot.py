"""What goes into the read model next: lanes that wait or did within the hour, and counts of customers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from throttler.engine.decisions import Decisions
from throttler.engine.drain import Drain
from throttler.engine.partition import OwnedPartition
from throttler.lanes.read_model import CountsSnapshot, LaneSnapshot, PartitionSnapshot
from throttler.lanes.state import LaneState

HOUR_US = 3_600_000_000
CHARTED_US = 12 * HOUR_US  # after the last message over the rate
Key = tuple[int, str]


@dataclass
class PendingChanges:
    """What the read model knows of a partition, and what it does not know yet."""

    complete: bool = True  # the next snapshot is the first, and has to name every lane that waits
    whole: bool = False  # so has this one: an earlier one failed, and the database may be another one now
    waited: dict[str, int] = field(default_factory=dict)  # customers that had a backlog, and when, in µs
    # With the lane, as it may be forgotten before the next snapshot; None: whatever lane the customer has then.
    changed: dict[str, LaneState | None] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)


class Snapshot:
    """Notes what committed transactions changed. One thread; the snapshots are for another."""

    def __init__(self, drain: Drain, process: str) -> None:
        self.drain, self.process = drain, process
        self._pending: dict[int, PendingChanges] = {}

    def adopted(self, part: OwnedPartition, now: int) -> None:
        """The first snapshot has to name everything that waits."""
        pending = self._pending[part.number] = PendingChanges()
        for lane in part.backlogged():
            pending.waited[lane.customer] = now
            pending.changed[lane.customer] = lane

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._pending.pop(number, None)

    def committed(self, out: Decisions, now: int) -> None:
        """A transaction is final."""
        for part, lane in out.changed:
            pending = self._pending.get(part.number)
            if pending is None:
                continue
            if lane.backlog:
                pending.waited[lane.customer] = now
            if pending.waited.get(lane.customer, 0) > now - HOUR_US:
                pending.changed[lane.customer] = lane
        self._count(out)

    def take(self, parts: Iterable[OwnedPartition], now: int) -> list[PartitionSnapshot]:
        """What has changed since the last snapshot, for each partition that has anything to tell."""
        return [self._of(part, pending, now) for part in parts if (pending := self._pending.get(part.number))]

    def failed(self, lost: PartitionSnapshot) -> None:
        """The database did not take it: tell it again, with what came since."""
        if pending := self._pending.get(lost.number):
            pending.complete |= lost.complete
            pending.whole = True
            pending.changed |= dict.fromkeys({lane.customer_id for lane in lost.lanes} - pending.changed.keys())
            for one in lost.counts:
                pending.counts.setdefault(one.customer_id, Counter()).update(
                    live=one.live, buffered=one.buffered, drained=one.drained, expired=one.expired
                )

    def _of(self, part: OwnedPartition, pending: PendingChanges, now: int) -> PartitionSnapshot:
        if pending.complete or pending.whole:
            pending.changed |= {lane.customer: lane for lane in part.backlogged()}
        stored, part.newly_stored = part.newly_stored, set()
        pending.changed |= dict.fromkeys((stored & pending.waited.keys()) - pending.changed.keys())
        changed, pending.changed = pending.changed, {}
        counts, pending.counts = pending.counts, {}
        complete, pending.complete = pending.complete, False
        whole, pending.whole = pending.whole, False
        lanes = [self._lane(part, lane) for name, last in changed.items() if (lane := part.lanes.get(name) or last)]
        self._forget_old(pending, now)
        return PartitionSnapshot(
            part.number, part.topic_id, part.epoch, part.committed, part.decided, dict(part.totals), lanes, complete,
            [self._counts(part, customer, count) for customer, count in counts.items()], whole, self.process,
            part.read if part.read < part.decided else None,
        )  # fmt: skip

    def _lane(self, part: OwnedPartition, lane: LaneState) -> LaneSnapshot:
        page = self.drain.pages.get((part.number, lane.customer))
        return LaneSnapshot.of(lane, page[0].created_us if page else None)

    def _counts(self, part: OwnedPartition, customer: str, counts: Counter[str]) -> CountsSnapshot:
        lane = part.lanes.get(customer)
        return CountsSnapshot(customer, **counts, backlog=lane.backlog if lane else 0)

    def _count(self, out: Decisions) -> None:
        for decoded in out.live:
            if decoded.message:  # as of all that goes live
                self._add(decoded.record.partition, decoded.message.customer_id, "live")
        for _decoded, row in out.rows:
            self._add(row.partition, row.customer_id, "buffered")
        for part, row in out.drained:
            self._add(part.number, row.customer_id, "drained")
        for part, row, _reason in out.overdue:
            self._add(part.number, row.customer_id, "expired")

    def _add(self, number: int, customer: str, path: str) -> None:
        pending = self._pending.get(number)
        if pending and customer in pending.waited:
            pending.counts.setdefault(customer, Counter())[path] += 1

    @staticmethod
    def _forget_old(pending: PendingChanges, now: int) -> None:
        """Those who were not over their rate for twelve hours; dictionaries keep the order of the first time."""
        old = [customer for customer, at in pending.waited.items() if at < now - CHARTED_US]
        for customer in old:
            del pending.waited[customer]
