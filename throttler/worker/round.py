"""One round of the owner: what was decided and drained, its transaction, and what all rounds share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from config.kafka import Record
from config.kafka.client import GroupMetadata
from config.kafka.transactional_producer import RefusedRecord, Verdict
from config.kafka.wire_format import partition_of
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log
from throttler.customers.policy_cache import PolicyCache
from throttler.engine.decisions import Decider, Decisions, Decoded, refusal, row_of
from throttler.engine.drain import Drain
from throttler.engine.output_transaction import OutputTransaction
from throttler.engine.partition import OwnedPartition
from throttler.engine.row_writer import WriteBehind
from throttler.lanes.state import LaneState
from throttler.limits.limiter import adopt, left_late, recovered, shift
from throttler.limits.output_rate import OutputLimiter
from throttler.messages import Notification
from throttler.overflow.store import OverflowRow

# -- Lanes that nobody needs any more ------------------------------------------------------------------------
# A fresh lane would decide the same as an idle one, which is therefore forgotten, here and in the changelog.
QUIET_US = 30_000_000  # of a lane that is forgotten: one that comes and goes is not worth a tombstone each time
SECOND_US = 1_000_000
SECONDS = 30  # in which each lane is looked at once


class LaneEviction:
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
        idle = [(part, customer) for part, customer in looked if self._is_idle(part, customer, now)]
        for part, customer in idle:
            del part.lanes[customer]
            part.touched = True
        return [*more, *idle]

    def _is_idle(self, part: OwnedPartition, customer: str, now: int) -> bool:
        lane = part.lanes.get(customer)
        return self.parts.get(part.number) is part and lane is not None and _nothing_to_remember(lane, now)


def _nothing_to_remember(lane: LaneState, now: int) -> bool:
    quiet = lane.limiter.tat + QUIET_US <= now and recovered(lane.limiter, now)
    # A lane that the transaction in hand logs is not forgotten by the same one.
    return quiet and not lane.backlog and not lane.changed and not lane.waits


# -- What all rounds of an owner share -----------------------------------------------------------------------
class RoundContext:
    """One thread. `parts` is the same dictionary for everybody."""

    def __init__(
        self, policies: PolicyCache, default_ttl_us: int, partitions: int, output: OutputLimiter | None
    ) -> None:
        self.policies, self.partitions, self.output = policies, partitions, output
        self.parts: dict[int, OwnedPartition] = {}
        self.topic_id = ""
        self.drain = Drain(self.parts, policies.of, default_ttl_us)
        self.eviction = LaneEviction(self.parts)
        self.decider = Decider(
            policies.of, default_ttl_us, self._right_partition, lambda decoded, day: row_of(decoded, self.topic_id, day)
        )
        self.decider.output = self if output else None
        self._poisoned: dict[tuple[int, int], str] = {}

    def adopt(self, part: OwnedPartition, late_us: int, now: int) -> None:
        """Count its lanes on from where they were restored; what they hold is watched from now on."""
        if stepped_us := part.stepped_us(now):
            log.warning("database_clock_stepped", partition=part.number, seconds=stepped_us // 1_000_000)
            for lane in part.lanes.values():
                shift(lane.limiter, stepped_us, now)
        for lane in part.lanes.values():
            lane.limiter.tat += late_us
            adopt(self.policies.of(lane.customer).rates, lane.limiter, now)
        for lane in part.backlogged():
            self.drain.watch(part, lane, now)

    def measure(self, output: OutputLimiter, now: int) -> None:
        """What our customers could send, for those who divide the rate of all."""
        waiting, count = self.drain.schedule.waiting(), self.drain.schedule.due_count
        output.meter.measure(now, waiting, count, self.drain.achievable_rate, self._weight_of)

    def has_room(self, now: int) -> bool:
        """Whether one more may go live; not before those whom the rate of all has cut short."""
        return self.output is None or (not self.drain.schedule.due_weight and self.output.allowance(now) > 0)

    def spend(self, count: int) -> None:
        if self.output:
            self.output.spend(count)

    def settled(self, now: int) -> None:
        """No transaction is in hand."""
        if self.output:
            self.output.settled(now)

    def refuse(self, sent: Record | OverflowRow | None, verdict: RefusedRecord) -> None:
        """The broker will never take what this record or row becomes: a dead letter when it comes again."""
        if sent:
            poisoned = self.drain.poisoned if isinstance(sent, OverflowRow) else self._poisoned
            poisoned[sent.partition, sent.offset] = verdict.reason

    def checked(self, decoded: Decoded) -> Decoded:
        """The record, or the letter it has become since it was refused."""
        if not self._poisoned:
            return decoded
        reason = self._poisoned.get((decoded.record.partition, decoded.record.offset), "")
        if not reason:
            return decoded
        key = decoded.message.notification_id if decoded.message else ""
        return replace(decoded, message=None, letter=refusal(decoded.record, "send", reason, self.topic_id, key))

    def _weight_of(self, customer: str) -> int:
        return self.policies.of(customer).weight

    def _right_partition(self, customer: str) -> int:
        return partition_of(customer.encode(), self.partitions)


# -- One round of the owner ----------------------------------------------------------------------------------
LATE_US = 50_000  # from decision to commit: what left later left at another time than the limiter thinks
LOGGED_US = 200_000  # from then on it is logged as well, at the price of another record a lane
DRAINED = 1000  # messages of one round: batches must not wait for a long drain


class OwnerRound:
    """Decisions of one transaction. `settled` are called behind it, whatever became of it."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.out = Decisions()
        self.began_us = 0  # when the first message was decided
        self.settled: list[Callable[[], None]] = []
        self.sent: list[OwnedPartition] = []
        self.gone: list[tuple[OwnedPartition, str]] = []

    def decide(self, batch: Sequence[Decoded], write_behind: WriteBehind, now: int) -> None:
        """Take up what belongs to our partitions and was not read before they were placed."""
        context, out = self.context, self.out
        self.began_us = self.began_us or now
        rows, letters = len(out.rows), len(out.letters)
        for decoded in batch:
            part = context.parts.get(decoded.record.partition)
            if part and decoded.record.offset >= part.read:
                context.decider.decide(part, context.checked(decoded), now, out)
        # Before the drain hears of these lanes: it reads what no partition waits for.
        write_behind.take(out.rows[rows:], out.letters[letters:], context.parts)
        for _decoded, row in out.rows[rows:]:
            part = context.parts[row.partition]
            context.drain.watch(part, part.lanes[row.customer_id], now)

    def drop(self, numbers: Set[int]) -> None:
        """Forget what was decided of partitions that were given up: their next owner, or we, decide it again."""
        out = self.out
        lists: tuple[list[Any], ...] = (
            out.live, out.expired, out.forwarded, out.rows, out.letters, out.drained, out.overdue, out.changed,
        )  # fmt: skip
        for decided in lists:
            decided[:] = [one for one in decided if _partition_of(one) not in numbers]

    def drain(self, now: int) -> None:
        """Let due messages of the backlogs leave."""
        context, output, before = self.context, self.context.output, len(self.out.drained)
        self.began_us = self.began_us or now
        context.drain.round(now, min(DRAINED, output.allowance(now)) if output else DRAINED, self.out)
        if output:
            output.spend(len(self.out.drained) - before)
            context.measure(output, now)

    def to_send(self, now: int) -> bool:
        """Whether there is anything to tell: messages, lanes to forget, or an offset that has moved on."""
        self.gone = self.context.eviction.forgotten(now)
        self.sent = [part for part in self.context.parts.values() if part.touched or part.position != part.committed]
        return bool(self.sent)

    def send(self, transaction: OutputTransaction, metadata: GroupMetadata) -> Verdict:
        """One transaction; returns its verdict."""
        return transaction.run(self.out, self.sent, self.gone, metadata, self.began_us)

    def committed(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Make it final, at `now`; returns the lanes whose limiter has to be logged once more."""
        for part in self.sent:
            part.touched, part.committed = False, part.position
        for _part, lane in self.out.changed:
            lane.changed = False
        self._count()
        if output := self.context.output:
            output.meter.sent(one.message.customer_id for one in self.out.live if one.message)
            output.meter.sent(row.customer_id for _part, row in self.out.drained)
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
            rates, count = self.context.policies.of(lane.customer).rates, sent[part.number, lane.customer]
            if count and not rates.held and left_late(rates, lane.limiter, self.began_us, now, count):
                moved.append((part, lane))
        return moved

    def _count(self) -> None:
        """One line, too, of a transaction that moved messages."""
        out = self.out
        purged = sum(reason == "purged" for _part, _row, reason in out.overdue)
        counts = {
            "live": len(out.live), "buffered": len(out.rows), "drained": len(out.drained), "purged": purged,
            "expired": len(out.expired) + len(out.overdue) - purged, "parked": len(out.letters),
            "forwarded": len(out.forwarded),
        }  # fmt: skip
        metrics.THROTTLER_EXPIRED.inc(counts["expired"])
        paths = {path: number for path, number in counts.items() if number}
        for path, number in paths.items():
            metrics.THROTTLED.labels(path).inc(number)
        if messages := sum(paths.values()):
            ids = RowIds(self._ways(), messages, path=0, notification_id=1, customer_id=2)
            log.info("round_committed", messages=messages, paths=paths, ids=ids)

    def _ways(self) -> Iterator[tuple[str, str, str]]:
        """The way of each message with its ids, rare ones first: what goes live would fill a line, which names a hundred."""
        out = self.out
        for _decoded, letter in out.letters:
            yield "parked", letter.business_key, ""
        for _part, row, reason in out.overdue:
            yield "purged" if reason == "purged" else "expired", row.notification_id, row.customer_id
        yield from _ways_of("expired", (decoded.message for decoded, _reason in out.expired))
        yield from _ways_of("forwarded", (decoded.message for decoded, _partition in out.forwarded))
        yield from _ways_of("buffered", (row for _decoded, row in out.rows))
        yield from _ways_of("drained", (row for _part, row in out.drained))
        yield from _ways_of("live", (decoded.message for decoded in out.live))


def _ways_of(path: str, moved: Iterable[Notification | OverflowRow | None]) -> Iterator[tuple[str, str, str]]:
    return ((path, each.notification_id, each.customer_id) for each in moved if each)


def _partition_of(decided: Any) -> int:
    """Of anything that stands in decisions."""
    first = decided[0] if isinstance(decided, tuple) else decided
    return int(first.number if isinstance(first, OwnedPartition) else first.record.partition)
