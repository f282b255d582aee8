"""What all rounds of an owner share: its partitions, the terms of customers, decider, drain, and the rate of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from config.kafka import Record
from config.kafka.format.murmur import partition_of
from config.kafka.transaction import RefusedRecord
from config.telemetry.logs import log
from throttler.limits.limiter import adopt, shift
from throttler.limits.shares import OutputLimiter
from throttler.live.decide import Decider, Decoded
from throttler.live.decode import refusal, row_of
from throttler.live.drain import Drain
from throttler.live.partition import OwnedPartition
from throttler.overflow.store import OverflowRow
from throttler.owner.memory import LaneMemory
from throttler.owner.terms import KnownTerms


class Rules:
    """One thread. `parts` is the same dictionary for everybody."""

    def __init__(self, terms: KnownTerms, default_ttl_us: int, partitions: int, output: OutputLimiter | None) -> None:
        self.terms, self.partitions, self.output = terms, partitions, output
        self.parts: dict[int, OwnedPartition] = {}
        self.topic_id = ""
        self.drain = Drain(self.parts, terms.of, default_ttl_us)
        self.memory = LaneMemory(self.parts)
        self.decider = Decider(
            terms.of, default_ttl_us, self._right_partition, lambda decoded, day: row_of(decoded, self.topic_id, day)
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
            adopt(self.terms.of(lane.customer).rates, lane.limiter, now)
        for lane in part.backlogged():
            self.drain.watch(part, lane, now)

    def room(self, now: int, most: int) -> int:
        """How many of the backlogs may leave now."""
        return min(most, self.output.allowance(now)) if self.output else most

    def measure(self, now: int) -> None:
        """What our customers could send, for those who divide the rate of all."""
        if self.output:
            schedule = self.drain.schedule
            self.output.meter.measure(now, schedule.waiting(), schedule.due_count, self.drain.could, self._weight_of)

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
        record: Any = decoded.record
        reason = self._poisoned.get((record.partition, record.offset), "")
        if not reason:
            return decoded
        return replace(decoded, message=None, letter=refusal(record, "send", reason, self.topic_id))

    def _weight_of(self, customer: str) -> int:
        return self.terms.of(customer).weight

    def _right_partition(self, customer: str) -> int:
        return partition_of(customer.encode(), self.partitions)
