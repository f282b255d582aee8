"""Commits to Kafka the offsets that the database has stored: never more, never of another member's partition."""

from __future__ import annotations

from typing import Any

from config.kafka import client, internals
from config.kafka.positions import TopicPartition
from config.kafka.runtime.writers import Writers
from config.telemetry.logs import log


class Offsets:
    """Commits what the writers have finished. The watermark in the database is the truth; this tells Kafka's tools."""

    def __init__(self, consumer: Any, writers: Writers) -> None:
        self.consumer = consumer
        self.writers = writers
        self._written: dict[TopicPartition, int] = {}

    def commit_soon(self) -> bool:
        """Send what is new without waiting; False when there was nothing."""
        offsets = self._new()
        if offsets:
            self.consumer.commit_async(offsets)
        return bool(offsets)

    def commit_now(self) -> None:
        """Commit what is new and wait for the answer."""
        if offsets := self._new():
            try:
                self.consumer.commit(offsets, timeout_ms=5_000)
            except client.KafkaError as error:
                _failed(error)

    async def commit_inside(self) -> None:
        """The same from inside a rebalance callback."""
        if offsets := self._new():
            try:
                await internals.commit_inside(self.consumer, offsets, timeout_ms=5_000)
            except client.KafkaError as error:
                _failed(error)

    def _new(self) -> dict[Any, Any]:
        ends: dict[TopicPartition, int] = {}
        for done in self.writers.finished():
            if done.sequence:
                ends |= done.ends
                self._written |= done.ends
            else:  # what was passed is old news where a later batch is written
                ends |= {tp: end for tp, end in done.ends.items() if end > self._written.get(tp, -1)}
                self._written |= ends
        # A batch may be done after its partition was taken away: its new owner knows better.
        mine = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in ends]
        return {tp: client.OffsetAndMetadata(ends[tp.topic, tp.partition], "", -1) for tp in mine}


def _failed(error: Exception) -> None:
    # Nothing is lost: the next commit, or the watermark at the next start, repairs it.
    log.warning("offset_commit_failed", error=str(error))
