"""Several writers side by side: batches of different partitions are stored at once, those of one in order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import connection

from config.kafka.positions import Positions, TopicPartition
from config.kafka.records import RecordBatch
from config.kafka.runtime.writer import Done, Handler, LogEnd, Writer


def parallel_writers() -> int:
    """How many transactions of one worker the database takes at once: SQLite has one writer."""
    return 1 if connection.vendor == "sqlite" else settings.KAFKA_WRITERS


class Writers:
    """One worker's writers: a transaction uses one core of the server, so several of them run at once.

    A partition is with one writer at a time, and stays there while a batch of it is under way: its batches are
    committed in the order of their offsets, so a watermark never skips one. Called from the polling thread only.
    """

    def __init__(self, handler: Handler, positions: Positions, group: str, count: int = 1) -> None:
        self._all = [Writer(handler, positions, group) for _ in range(count)]
        self._last: dict[TopicPartition, tuple[Writer, int]] = {}
        self._ahead: set[int] = set()
        self.sequence = 0  # of the batch submitted last
        self.done_sequence = 0  # up to here every batch is in the database

    def deal(self, records: Sequence[Any]) -> Iterator[tuple[Writer, list[Any]]]:
        """Who stores which records of a poll; to be submitted in this order."""
        shares: dict[Writer, list[Any]] = {}
        place: dict[TopicPartition, list[Any]] = {}
        for record in records:
            tp = record.topic, record.partition
            share = place.get(tp)
            if share is None:
                writer = self._under_way(tp) or min(self._all, key=lambda one: (len(shares.get(one, ())), one.backlog))
                share = place[tp] = shares.setdefault(writer, [])
            share.append(record)
        yield from shares.items()

    def _under_way(self, tp: TopicPartition) -> Writer | None:
        """The writer that has a batch of this partition in hand."""
        writer, sequence = self._last.get(tp, (None, 0))
        return writer if writer and writer.finished < sequence else None

    def submit(self, writer: Writer, batch: RecordBatch, timeout: float) -> bool:
        """Hand over a share of `deal`; False when what this writer has is still at work after `timeout` seconds."""
        if not writer.submit(batch, self.sequence + 1, timeout):
            return False
        self.sequence += 1
        self._last.update(dict.fromkeys(batch.ends, (writer, self.sequence)))
        return True

    def finished(self) -> Iterator[Done]:
        """The batches committed since the last call."""
        for writer in self._all:
            while not writer.done.empty():
                done = writer.done.get()
                if done.sequence:
                    self._ahead.add(done.sequence)
                yield done
        while self.done_sequence + 1 in self._ahead:
            self.done_sequence += 1
            self._ahead.remove(self.done_sequence)

    def beat(self, ends: Mapping[TopicPartition, LogEnd]) -> None:
        """Ask one writer only, always the same: `pressed` is its answer."""
        self._all[0].beat(ends)

    def drain(self, patience: float) -> bool:
        """Wait until everything submitted is written; False when `patience` seconds were not enough."""
        deadline = time.monotonic() + patience
        return all(writer.drain(deadline - time.monotonic()) for writer in self._all)

    @property
    def busy(self) -> bool:
        return any(writer.busy for writer in self._all)

    @property
    def waiting(self) -> bool:
        """The database is away."""
        return any(writer.waiting for writer in self._all)

    @property
    def pressed(self) -> bool:
        """The handler asked for a pause."""
        return self._all[0].pressed

    @property
    def working(self) -> bool:
        """Nothing but batches makes work here."""
        return False

    def full(self) -> set[TopicPartition]:
        """What waits for the database is bounded for all partitions together."""
        return set()

    def lost(self) -> set[TopicPartition]:
        """A batch that was taken is written, whatever it takes."""
        return set()

    def close(self, patience: float = 30.0) -> None:
        """Finish what is in hand, or abandon it (its transactions roll back) after `patience` seconds."""
        self.drain(patience)
        for writer in self._all:
            writer.abandon()
        for writer in self._all:
            writer.close(patience=0)
