"""One round of the owner: what was decided and drained, the transaction it goes into, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any

from config.telemetry import metrics
from throttler.lanes.lane import LaneState
from throttler.limits.limiter import left_late
from throttler.live.decide import Decisions, Decoded
from throttler.live.partition import OwnedPartition
from throttler.live.sending import Sending
from throttler.owner.rules import Rules
from throttler.owner.stowing import Stowing

LATE_US = 50_000  # from decision to commit: what left later left at another time than the limiter thinks
LOGGED_US = 200_000  # from then on the changelog is told as well, at the price of another record a lane
DRAINED = 1000  # messages of one round: batches must not wait for a long drain


class OwnerRound:
    """Decisions of one transaction. `settled` are called behind it, whatever became of it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.out = Decisions()
        self.began_us = 0  # when the first message was decided
        self.settled: list[Callable[[], None]] = []
        self.sent: list[OwnedPartition] = []
        self.gone: list[tuple[OwnedPartition, str]] = []

    @property
    def size(self) -> int:
        return self.out.size + len(self.out.rows) + len(self.out.letters)

    def decide(self, batch: Sequence[Decoded], stowing: Stowing, now: int) -> None:
        """Take up what belongs to our partitions and was not read before they were placed."""
        rules, out = self.rules, self.out
        self.began_us = self.began_us or now
        rows, letters = len(out.rows), len(out.letters)
        for decoded in batch:
            part = rules.parts.get(decoded.record.partition)
            if part and decoded.record.offset >= part.read:
                rules.decider.decide(part, rules.checked(decoded), now, out)
        # Before the drain hears of these lanes: it reads what no partition waits for.
        stowing.take(out.rows[rows:], out.letters[letters:], rules.parts)
        for _decoded, row in out.rows[rows:]:
            part = rules.parts[row.partition]
            rules.drain.watch(part, part.lanes[row.customer_id], now)

    def drop(self, numbers: Set[int]) -> None:
        """Forget what was decided of partitions that were given up: their next owner, or we, decide it again."""
        out = self.out
        lists: tuple[list[Any], ...] = (
            out.live, out.expired, out.forwarded, out.rows, out.letters, out.drained, out.overdue, out.changed,
        )  # fmt: skip
        for decided in lists:
            decided[:] = [one for one in decided if _partition_of(one) not in numbers]

    def drain(self, now: int) -> None:
        """Let leave what is due."""
        rules, before = self.rules, len(self.out.drained)
        self.began_us = self.began_us or now
        rules.drain.round(now, rules.room(now, DRAINED), self.out)
        if rules.output:
            rules.output.spend(len(self.out.drained) - before)
            rules.measure(now)

    def to_send(self, now: int) -> bool:
        """Whether there is anything to tell: messages, lanes to forget, or an offset that has moved on."""
        self.gone = self.rules.memory.forgotten(now)
        self.sent = [part for part in self.rules.parts.values() if part.touched or part.position != part.committed]
        return bool(self.sent)

    def send(self, sending: Sending, metadata: Any) -> Any:
        """One transaction; returns its verdict."""
        return sending.run(self.out, self.sent, self.gone, metadata, self.began_us)

    def committed(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Make it final, at `now`; returns the lanes whose limiter the changelog has to be told again."""
        for part in self.sent:
            part.touched, part.committed = False, part.position
        for _part, lane in self.out.changed:
            lane.changed = False
        self._count()
        self._meter()
        late_us = now - self.began_us
        moved = self._moved(now) if late_us > LATE_US else []
        return moved if late_us > LOGGED_US else []

    def settle(self) -> None:
        done, self.settled = self.settled, []
        for tell in done:
            tell()

    def _moved(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """What left late counts from when it left: otherwise the next ones would follow too closely.

        A lane whose limiter is ahead of that already stays where it is, so that a slow broker slows nobody's backlog.
        """
        sent = Counter((one.record.partition, one.message.customer_id) for one in self.out.live if one.message)
        sent.update((part.number, row.customer_id) for part, row in self.out.drained)
        moved = []
        for part, lane in self.out.changed:
            rates, count = self.rules.terms.of(lane.customer).rates, sent[part.number, lane.customer]
            if count and not rates.held and left_late(rates, lane.limiter, self.began_us, now, count):
                moved.append((part, lane))
        return moved

    def _meter(self) -> None:
        """For the rate of all: what each customer has sent."""
        if self.rules.output:
            meter = self.rules.output.meter
            meter.sent(one.message.customer_id for one in self.out.live if one.message)
            meter.sent(row.customer_id for _part, row in self.out.drained)

    def _count(self) -> None:
        out = self.out
        purged = sum(reason == "purged" for _part, _row, reason in out.overdue)
        counts = {
            "live": len(out.live), "buffered": len(out.rows), "drained": len(out.drained), "purged": purged,
            "expired": len(out.expired) + len(out.overdue) - purged, "parked": len(out.letters),
            "forwarded": len(out.forwarded),
        }  # fmt: skip
        metrics.THROTTLER_EXPIRED.inc(counts["expired"])
        for path, number in counts.items():
            if number:
                metrics.THROTTLED.labels(path).inc(number)


def _partition_of(decided: Any) -> int:
    """Of anything that stands in decisions."""
    first = decided[0] if isinstance(decided, tuple) else decided
    return int(first.number if isinstance(first, OwnedPartition) else first.record.partition)
