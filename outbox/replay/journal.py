"""Stands between writer and handler during a replay: saves counts and positions in each batch's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from config.kafka.positions import Mark, Reach, TopicPartition
from config.kafka.records import Record, RecordBatch
from config.kafka.runtime.writer import Handler, Replayable
from config.kafka.timeframe import Bounds
from outbox.replay.models import LEASE, TopicReplay, TopicReplayQuerySet

COUNTS = ("read", "already", "applied", "parked", "outside")


class Journal(Handler):
    """The writer's handler and its positions in one: no watermark moves, no offset is committed.

    A dry run goes through the same statements and is rolled back, batch by batch. What an earlier batch would
    have stored is then not there; so its records are stored once more in front of a batch that depends on them.
    """

    def __init__(self, replay: TopicReplay, token: uuid.UUID, handler: Replayable) -> None:
        self.replay, self.token, self.handler = replay, token, handler
        self.name, self.group, self.topics = handler.name, handler.group, handler.topics
        self.counts = {name: int(getattr(replay, name)) for name in COUNTS}
        self.bounds = {int(number): Bounds(*pair) for number, pair in replay.bounds.items()}
        self.positions = {int(number): int(offset) for number, offset in replay.positions.items()}
        self.lost = False  # cancelled, or taken over after the lease ran out
        self._batch: RecordBatch | None = None
        self._would_be: dict[Hashable, dict[tuple[int, int], Record]] = {}

    # -- the writer's handler -------------------------------------------------------------------------
    def prepare(self, batch: RecordBatch) -> Any:
        return self.handler.prepare(batch)

    def write(self, batch: RecordBatch, now: datetime) -> None:
        if self.replay.dry_run:
            self._store_earlier(batch, now)
        self.handler.write(batch, now)
        self._batch = batch

    def park(self, batch: RecordBatch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        self.handler.park(batch, record, error, trace, now)
        self._batch = batch

    def pressure(self) -> bool:
        return self.handler.pressure()

    def repair(self) -> None:
        self.handler.repair()

    # -- the writer's positions -----------------------------------------------------------------------
    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]:
        return {}

    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Save counts and positions with the batch, or roll it back when the replay is no longer ours."""
        if self._batch is None:
            return
        counts = self._counts_after(self._batch)
        positions = {**self.positions, **{tp[1]: mark.next_offset for tp, mark in marks.items()}}
        if self.replay.dry_run:
            transaction.set_rollback(True)
            self._remember(self._batch)
            self._keep(counts, positions)
        elif self._save(counts, positions, now):
            transaction.on_commit(lambda: self._keep(counts, positions))
        else:
            self.lost = True
            transaction.set_rollback(True)

    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Nothing: a replay resets no position."""

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        """Nothing: a replay stops no partition."""

    def reach(self, group: str, reached: Mapping[TopicPartition, Reach], now: datetime) -> None:
        """Nothing: the consumer stores where the log ends."""

    # -- what is known --------------------------------------------------------------------------------
    @property
    def remaining(self) -> dict[int, Bounds]:
        """What is still to be read, by partition."""
        return {
            number: Bounds(max(here.start, self.positions.get(number, 0)), here.end)
            for number, here in self.bounds.items()
        }

    @property
    def looked_at(self) -> int:
        return self._distance(self.positions)

    def rest_at(self, partition: int, position: int) -> None:
        """Nothing up to `position` is left to store; call it only while the writer is idle."""
        self.positions = {**self.positions, partition: position}

    def beat(self, now: datetime, note: str, *, idle: bool) -> None:
        """Renew the lease; save the progress, too, unless the writer may be saving it at this moment."""
        changes: dict[str, Any] = {"lease_until": now + LEASE, "note": note}
        if idle or self.replay.dry_run:
            changes |= self.state()
        if not self._mine().update(**changes):
            self.lost = True

    def state(self) -> dict[str, Any]:
        """Counts and positions as the row stores them. A dry run stores no positions: it cannot be resumed."""
        positions = {} if self.replay.dry_run else dict(self.positions)
        return {**self.counts, "positions": positions, "looked_at": self.looked_at}

    def _counts_after(self, batch: RecordBatch) -> dict[str, int]:
        tally, read = batch.tally, len(batch.records)
        known = read - tally.applied - tally.parked - tally.outside
        added = dict(zip(COUNTS, (read, known, tally.applied, tally.parked, tally.outside), strict=True))
        return {name: self.counts[name] + added[name] for name in COUNTS}

    def _save(self, counts: dict[str, int], positions: dict[int, int], now: datetime) -> int:
        state = {**counts, "positions": positions, "looked_at": self._distance(positions)}
        return self._mine().update(**state, lease_until=now + LEASE)

    def _mine(self) -> TopicReplayQuerySet:
        return TopicReplay.objects.run_by(self.token).filter(pk=self.replay.pk)

    def _keep(self, counts: dict[str, int], positions: dict[int, int]) -> None:
        self.counts, self.positions = counts, positions

    def _distance(self, positions: Mapping[int, int]) -> int:
        return sum(max(0, positions.get(number, 0) - here.start) for number, here in self.bounds.items())

    # -- a dry run's memory ---------------------------------------------------------------------------
    def _store_earlier(self, batch: RecordBatch, now: datetime) -> None:
        if not self._would_be:
            return
        earlier, number = batch, -1
        found: dict[tuple[int, int], Record] = {}
        while len(found) != number:  # and the records that those depend on
            number = len(found)
            for key in self.handler.keys_of(earlier):
                found |= self._would_be.get(key, {})
            records = [found[at] for at in sorted(found)]
            earlier = RecordBatch(records, batch.topic_ids, revision=batch.revision, from_log=True)
            earlier.prepared = self.handler.prepare(earlier)
        if found:
            self.handler.write(earlier, now)

    def _remember(self, batch: RecordBatch) -> None:
        for key, records in batch.tally.changed.items():
            here = self._would_be.setdefault(key, {})
            here.update({(record.partition, record.offset): record for record in records})
