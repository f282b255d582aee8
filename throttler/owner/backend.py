"""What stands behind the consumer in place of the database's writers: the owner, its committer and its follower."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from config.kafka import client, internals
from config.kafka.positions import TopicPartition
from config.kafka.records import RecordBatch
from config.kafka.runtime.ports import ConsumerStopped, Follower
from config.kafka.runtime.writer import LogEnd
from config.kafka.transaction import remove_static_member
from config.telemetry.logs import log
from throttler.live.partition import OwnedPartition
from throttler.owner.owner import PartitionOwner, partitions_dropped
from throttler.owner.placing import RestoredPlacing
from throttler.owner.plain_sender import PlainSender
from throttler.owner.upkeep import Upkeep

AHEAD = 2  # batches with the owner: one is decided while the next one is decoded
# Fewer are always taken, in however many batches: at a thousand a second each poll brings a dozen, and what waited for
# the second transaction after its own would take twice as long.
FEW = 500  # records
QUIET = 0.1  # seconds without anything due after which the owner counts as idle


class OwnerBackend:
    """Hands batches to the owner; called from the polling thread only."""

    waiting = pressed = False  # the database being away stops nobody who is under the rate

    def __init__(self, owner: PartitionOwner, upkeep: Upkeep, topic: str) -> None:
        self.owner, self.upkeep, self.topic = owner, upkeep, topic
        self.sequence = self.done_sequence = 0
        self._room = threading.Condition()
        self._records = 0

    @property
    def busy(self) -> bool:
        """A batch waits or is at work."""
        return self.done_sequence < self.sequence

    @property
    def working(self) -> bool:
        """Something was due a moment ago, or is on its way to the store or from it."""
        return time.monotonic() - self.owner.worked_at < QUIET

    def full(self) -> set[TopicPartition]:
        """Partitions of which more waits for the store than memory should hold."""
        return {(self.topic, number) for number in self.owner.stalled}

    def lost(self) -> set[TopicPartition]:
        """Partitions whose records have to be read again; raises what ended the owner."""
        self._raise_failure()
        return {(self.topic, number) for number in partitions_dropped(self.owner)}

    def deal(self, records: Sequence[Any]) -> Iterable[tuple[Any, list[Any]]]:
        return [(None, list(records))] if records else []

    def submit(self, _to: Any, batch: RecordBatch, timeout: float) -> bool:
        """Hand over a batch; False when enough is with the owner still after `timeout` seconds."""
        self._raise_failure()
        size = len(batch.records)
        with self._room:
            if not self._room.wait_for(self._has_room, timeout):
                return False
            self.sequence += 1
            self._records += size
        self.owner.post(self.owner.take, batch.prepared, partial(self._settled, size))
        return True

    def adopt(self, part: OwnedPartition, forgotten: Iterable[bytes]) -> None:
        """Hand over a partition that was restored; busy until what it has to say first is in the changelog."""
        with self._room:
            self.sequence += 1
        self.owner.post(self.owner.adopt, part, forgotten, partial(self._settled, 0))

    def _has_room(self) -> bool:
        return self._records < FEW or self.sequence - self.done_sequence < AHEAD

    def _settled(self, size: int) -> None:
        """In the owner's thread; batches are settled in their order."""
        with self._room:
            self.done_sequence += 1
            self._records -= size
            self._room.notify()

    def beat(self, ends: Mapping[TopicPartition, LogEnd]) -> None:
        passed = {tp[1]: end.passed for tp, end in ends.items() if end.passed}
        if passed:
            self.owner.post(self.owner.passed, passed)
        self.upkeep.reached(ends)

    def drain(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.005)
        return not self.busy

    def close(self) -> None:
        """Finish the transaction in hand; rows that are not stored are read again by whoever comes next.

        All waits of an end together stay below ten seconds, also where broker and database hang: after that a supervisor
        kills. A transaction that is given up is settled by whoever comes next.
        """
        self.owner.close(patience=3.0)
        self.upkeep.close()
        self.owner.pages.close()
        self.owner.repairs.rereader.close()
        self.owner.stowing.close(patience=0.5)

    def _raise_failure(self) -> None:
        if self.owner.failure is not None:
            raise self.owner.failure


class TransactionCommitter:
    """Offsets travel in the owner's transactions; this only waits for the one in hand before partitions go."""

    def __init__(self, consumer: Any, owner: PartitionOwner) -> None:
        self.consumer, self.owner = consumer, owner

    def commit_soon(self) -> bool:
        return False

    def commit_now(self) -> None: ...

    async def commit_inside(self) -> None:
        """Let the owner give everything up behind the transaction in hand; ten seconds at most."""
        given_up = threading.Event()
        self.owner.post(self.owner.give_up_all, given_up)
        deadline = time.monotonic() + 10
        while not given_up.is_set() and self.owner.alive and time.monotonic() < deadline:
            await internals.nap(self.consumer, 0.005)


class PlainCommitter(TransactionCommitter):
    """Commits what a `PlainSender` has sent, from the polling thread."""

    def __init__(self, consumer: Any, owner: PartitionOwner, sender: PlainSender) -> None:
        super().__init__(consumer, owner)
        self.sender = sender

    def commit_soon(self) -> bool:
        if found := self._new():
            self.consumer.commit_async(found)
        return bool(found)

    def commit_now(self) -> None:
        if found := self._new():
            try:
                self.consumer.commit(found, timeout_ms=5_000)
            except client.KafkaError as error:
                log.warning("offset_commit_failed", error=str(error))

    async def commit_inside(self) -> None:
        await super().commit_inside()
        if found := self._new():
            try:
                await internals.commit_inside(self.consumer, found, timeout_ms=5_000)
            except client.KafkaError as error:
                log.warning("offset_commit_failed", error=str(error))

    def _new(self) -> dict[Any, Any]:
        offsets: dict[TopicPartition, int] = {}
        while not self.sender.offsets.empty():
            offsets |= self.sender.offsets.get()
        mine = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in offsets]
        return {tp: client.OffsetAndMetadata(offsets[tp.topic, tp.partition], "", -1) for tp in mine}


class OwnerFollower(Follower):
    """Tells the owner what becomes of the membership."""

    def __init__(
        self, owner: PartitionOwner, placing: RestoredPlacing, group: str, instance: str,
        told: Callable[[set[int] | None, int], None] = lambda _numbers, _generation: None,
    ) -> None:  # fmt: skip
        self.owner, self.placing, self.group, self.instance, self.told = owner, placing, group, instance, told

    def assigned(self, partitions: set[TopicPartition], metadata: Any) -> None:
        self.placing.epoch = metadata.generation_id
        self.placing.forget({number for _topic, number in partitions})
        self.owner.member = metadata
        self.owner.post(self.owner.assigned, metadata)
        self.told({number for _topic, number in partitions}, metadata.generation_id)

    def released(self, partitions: set[TopicPartition], lost: bool) -> None:
        gone = {number for _topic, number in partitions}
        self.placing.forget(gone)
        self.owner.post(self.owner.give_up, gone)
        self.told(None, -1)

    def recounted(self, topic: str, before: int, now: int) -> None:
        raise ConsumerStopped(
            f"{topic} has {now} partitions, at first it had {before}: a customer has the same partition in all four "
            "topics, and keeps it; docs/throttler-run.md says how to add partitions"
        )

    def left(self) -> None:
        # Who was fenced would remove the process that has its name now.
        if self.instance and not self.owner.doubted:
            remove_static_member(self.group, self.instance, limit=2.0)
