"""One round of the owner: what was decided and drained, the transaction it goes into, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any

from config.telemetry import metrics
from throttler.lanes.lane import LaneState
from throttler.live.decide import Decisions, Decoded
from throttler.live.partition import OwnedPartition
from throttler.live.sending import Sending
from throttler.owner.rules import Rules
from throttler.owner.stowing import Stowing

DRAINED = 1000  # messages of one round: batches must not wait for a long drain
UNTOLD_US = 200_000  # worth of messages whose lateness only this process knows


class Round:
    """Decisions of one transaction. `settled` are called behind it, whatever became of it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.out = Decisions()
        self.settled: list[Callable[[], None]] = []
        self.sent: list[OwnedPartition] = []
        self.gone: list[tuple[OwnedPartition, str]] = []

    @property
    def size(self) -> int:
        return self.out.size + len(self.out.rows) + len(self.out.letters)

    def decide(self, batch: Sequence[Decoded], stowing: Stowing, now: int) -> None:
        """Take up what belongs to our partitions and was not read before they were placed."""
        rules, out = self.rules, self.out
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
        rules.drain.round(now, rules.room(now, DRAINED), self.out)
        if rules.output:
            rules.output.spend(len(self.out.drained) - before)

    def to_send(self, now: int) -> bool:
        """Whether there is anything to tell: messages, lanes to forget, or an offset that has moved on."""
        self.gone = self.rules.memory.forgotten(now)
        self.sent = [part for part in self.rules.parts.values() if part.touched or part.position != part.committed]
        return bool(self.sent)

    def send(self, sending: Sending, metadata: Any) -> Any:
        """One transaction; returns its verdict."""
        return sending.run(self.out, self.sent, self.gone, metadata)

    def committed(self, late_us: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Make it final. `late_us`: so much later than decided it all left; returns whose limiter had to be told."""
        for part in self.sent:
            part.touched, part.committed = False, part.position
        for _part, lane in self.out.changed:
            lane.changed = False
        self._count()
        return self._shifted(late_us) if late_us else []

    def settle(self) -> None:
        done, self.settled = self.settled, []
        for tell in done:
            tell()

    def _shifted(self, late_us: int) -> list[tuple[OwnedPartition, LaneState]]:
        """What left late counts from then on: otherwise the next ones would follow too closely."""
        found = []
        for (number, customer), count in self._left().items():
            part = self.rules.parts[number]
            lane = part.lanes[customer]
            lane.limiter.tat += late_us
            rates = self.rules.terms.of(customer).rates
            # A restart forgets the lateness of the others, which is at most what the few that left are worth. Were
            # every lane logged again, the next transaction would be slower still, and soon each would log all of them.
            if not rates.held and rates.worth_us(count) > UNTOLD_US:
                found.append((part, lane))
        return found

    def _left(self) -> Counter[tuple[int, str]]:
        """How many messages of each lane left, by partition and customer."""
        found = Counter((part.number, row.customer_id) for part, row in self.out.drained)
        found.update((one.record.partition, one.message.customer_id) for one in self.out.live if one.message)
        return found

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
