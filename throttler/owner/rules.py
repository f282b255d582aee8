"""What all rounds of an owner share: its partitions, the terms of customers, decider, drain, and the rate of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from config.kafka.format.murmur import partition_of
from config.kafka.transaction import RefusedRecord
from outbox.letters.burial import Letter
from throttler.limits.shares import OutputLimiter, alone
from throttler.live.decide import Decider, Decoded
from throttler.live.decode import SOURCE, row_of
from throttler.live.drain import Drain
from throttler.live.partition import OwnedPartition
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

    def room(self, now: int, most: int) -> int:
        """How many of the backlogs may leave now."""
        return min(most, self.output.allowance(now)) if self.output else most

    def has_room(self, now: int) -> bool:
        """Whether one more may go live; not before those whom the rate of all has cut short."""
        return self.output is None or (not self.drain.schedule.due_weight and self.output.allowance(now) > 0)

    def share(self, now: int) -> None:
        """Of the rate of all, this process has what its partitions are of all partitions."""
        if self.output:
            self.output.set_share(alone(len(self.parts), self.partitions), now)

    def spend(self, count: int) -> None:
        if self.output:
            self.output.spend(count)

    def refuse(self, place: tuple[int, int] | None, verdict: RefusedRecord) -> None:
        """The broker will never take what this record becomes: a dead letter when it comes again."""
        if place:
            self._poisoned[place] = verdict.reason

    def checked(self, decoded: Decoded) -> Decoded:
        """The record, or the letter it has become since it was refused."""
        if not self._poisoned:
            return decoded
        record: Any = decoded.record
        reason = self._poisoned.get((record.partition, record.offset), "")
        if not reason:
            return decoded
        return replace(
            decoded, message=None, letter=Letter(SOURCE, "send", "broker_refused", reason, record, self.topic_id)
        )

    def _right_partition(self, customer: str) -> int:
        return partition_of(customer.encode(), self.partitions)
