"""The owner behind the Kafka consumer: its input, where partitions start, its commits."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from config.database.retry import Remedy, wait_for_rerun
from config.formats.registry import RegistryUnavailable
from config.kafka import Record, RecordBatch, client, internals, producer_internals
from config.kafka.consumer.ports import ConsumerStopped, Follower
from config.kafka.consumer.writer import LogEndSeen
from config.kafka.positions import Start, Stopped, TopicPartition
from config.kafka.records import Header
from config.kafka.transactional_producer import Committed, RefusedRecord, Unknown, Verdict, remove_static_member
from config.telemetry.logs import log
from throttler.engine.decisions import Decoded, decode
from throttler.engine.output_transaction import INPUT
from throttler.engine.partition import OwnedPartition
from throttler.engine.row_writer import GROUP
from throttler.lanes.read_model import Recalled
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.lanes.restore_thread import RestoreThread
from throttler.messages import gate
from throttler.worker.database_sync import DatabaseSync
from throttler.worker.owner import PartitionOwner


# -- The input, decoded on the polling thread ----------------------------------------------------------------
class Notifications:
    """The records of notifications-in."""

    name = group = GROUP
    topics = [INPUT]
    gathers = False

    def __init__(self) -> None:
        self._gate = gate()

    def prepare(self, batch: RecordBatch) -> Sequence[Decoded]:
        """Each record as a message or as a letter; never raises for bad input."""
        return [decode(record, self._gate, batch.topic_ids.get(record.topic, "")) for record in batch.records]


# -- Where partitions start ----------------------------------------------------------------------------------
class RestoredPlacing:
    """Asks for the restore of what was assigned, and hands over what is restored. Never waits.

    `given_up(numbers, then)` lets the owner drop what it still has of partitions, and calls `then` behind its last
    transaction: a restore that read before that would be out of date. `known` says what the read model knows of a partition
    whose changelog has lost it, None before the database has answered. `alarms`, by partition: the alarm and our generation.
    """

    def __init__(
        self, restoring: RestoreThread, topic: str, adopt: Callable[[OwnedPartition, frozenset[bytes]], None],
        given_up: Callable[[set[int], Callable[[set[int]], None]], None], ready: Callable[[], bool],
        known: Callable[[int, int], Recalled | None], alarms: dict[int, tuple[str, int]],
    ) -> None:  # fmt: skip
        self.restoring, self.topic, self.adopt, self.given_up = restoring, topic, adopt, given_up
        self.ready, self.known, self.alarms = ready, known, alarms
        self.epoch = -1
        self._asked: set[int] = set()
        self._restored: dict[int, RestoredPartition | RefusedPartition] = {}
        self._resets: dict[int, tuple[OwnedPartition, RestoredPartition]] = {}

    def place(self, consumer: client.Client, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
        """What is restored of `waiting`. Before the customers' rates are known nothing is: nobody's rate is guessed."""
        if not self.ready():
            return {}
        wanted = {number for _topic, number in waiting}
        if new := wanted - self._asked:
            self._asked |= new
            self.given_up(new, self.restoring.ask)
        ready = self.restoring.ready().items()
        self._restored |= {number: outcome for number, outcome in ready if number in self._asked}
        starts: dict[TopicPartition, Start | Stopped] = {}
        for number in wanted & self._restored.keys():
            if start := self._start(self._restored[number]):
                starts[self.topic, number] = start
                del self._restored[number]
                self._asked.discard(number)
        return starts

    def confirmed(self, starts: Mapping[TopicPartition, Start | Stopped]) -> bool:
        for (topic, number), start in starts.items():
            if isinstance(start, Stopped):
                # Its lanes stand still, also where it ran before: what is reported has no alarm.
                self.given_up({number}, lambda _gone: None)
                self.alarms[number] = start.alarm, self.epoch
                continue
            part, outcome = self._resets.pop(number)
            gone = len(outcome.forgotten)
            log.warning("reset_accepted", topic=topic, partition=number, was=outcome.reset, lanes=gone)
            self.adopt(part, outcome.forgotten)
        return True

    def forget(self, numbers: set[int]) -> None:
        """What is being restored is ours no more, or has to be read again; its alarms are for others to raise."""
        self._asked -= numbers
        self.restoring.forget(numbers)
        for number in numbers:
            for of_partition in (self._restored, self._resets, self.alarms):
                of_partition.pop(number, None)

    def _start(self, outcome: RestoredPartition | RefusedPartition) -> Start | Stopped | None:
        """None: not yet."""
        if isinstance(outcome, RefusedPartition):
            return Stopped(outcome.alarm)
        known = self.known(outcome.number, self.epoch) if outcome.uncounted else Recalled(outcome.totals)
        if known is None:
            return None
        part = OwnedPartition(
            outcome.number, outcome.topic_id, self.epoch, outcome.decided, outcome.position, outcome.position,
            lanes=outcome.lanes, totals=Counter(known.totals), late_us=outcome.late_us,
            expected_us=outcome.expected_us, decided_before=max(outcome.decided_before, known.decided(outcome.topic_id)),
        )  # fmt: skip
        if outcome.reset or outcome.uncounted:
            part.write_off()
        if outcome.reset:
            part.touched = True  # also where there is nothing to read: the next start would be stopped again
            self._resets[outcome.number] = part, outcome
        else:
            self.adopt(part, outcome.forgotten)
        return Start(outcome.position, accepts=outcome.reset)


# -- Sends without transactions ------------------------------------------------------------------------------
Offsets = Mapping[TopicPartition, int]


class PlainSender:
    """Stands in for a `TransactionalProducer`. The offsets of what was acknowledged wait in `offsets` for the polling
    thread, which commits them: a process that is killed in between sends again, and so does one whose broker has
    refused a record, which becomes a letter when it comes again."""

    usable = True  # no outcome makes it useless but Unknown, after which it is rebuilt anyway

    def __init__(self, limit: float = 8.0) -> None:
        self.limit = limit
        self.offsets: queue.SimpleQueue[Offsets] = queue.SimpleQueue()
        self._client: client.kafka.KafkaProducer = None
        # A future, and what is said of its record if it is refused.
        self._sent: list[tuple[producer_internals.FutureRecordMetadata, RefusedRecord]] = []
        self._refused: RefusedRecord | None = None
        self._error = ""

    def rebuild(self, member: client.GroupMetadata | None = None) -> None:
        """A new client; raises KafkaError: try again later."""
        self.close()
        milliseconds = int(self.limit * 1000)
        self._client = client.new_producer(
            linger_ms=0, delivery_timeout_ms=milliseconds, request_timeout_ms=milliseconds, max_block_ms=milliseconds
        )

    def begin(self) -> None:
        self._sent, self._refused, self._error = [], None, ""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        if self._error or self._refused:
            return
        record = RefusedRecord(len(self._sent), topic, partition, "")
        try:
            sent = producer_internals.send_record(self._client, topic, partition, key, value, headers)
            self._sent.append((sent, record))
        except client.RECORD_REFUSED as error:
            self._refused = replace(record, reason=_text(error))
        except client.AuthorizationError:
            raise
        except (client.KafkaError, ValueError) as error:
            self._error = _text(error)

    def commit(self, offsets: Offsets, metadata: client.GroupMetadata) -> Verdict:
        """Wait for every record; the offsets follow once all of them are there."""
        deadline = time.monotonic() + self.limit
        for future, record in self._sent:
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
            except client.RECORD_REFUSED as error:
                self._refused = self._refused or replace(record, reason=_text(error))
            except client.AuthorizationError:
                raise
            except client.KafkaError as error:  # also those of whatever was sent behind a refused record
                self._error = self._error or _text(error)
        if self._refused or self._error:
            return self._refused or Unknown(self._error)
        if offsets:
            self.offsets.put(offsets)
        return Committed()

    def close(self) -> None:
        producer, self._client = self._client, None
        if producer is not None:
            with suppress(client.KafkaError):
                producer_internals.drop_producer(producer)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# -- The owner behind the consumer ---------------------------------------------------------------------------
AHEAD = 2  # batches with the owner: one is decided while the next one is decoded
# Fewer are always taken, in however many batches: at a thousand a second each poll brings a dozen, and what waited for
# the second transaction after its own would take twice as long.
FEW = 500  # records
QUIET = 0.1  # seconds without anything due after which the owner counts as idle


class OwnerBackend:
    """Hands batches to the owner; called from the polling thread only."""

    # The schema registry is away: what waits leaves, and nothing more is read. The database being away stops nobody.
    waiting: RegistryUnavailable | None = None
    pressed = False

    def __init__(self, owner: PartitionOwner, database_sync: DatabaseSync, topic: str) -> None:
        self.owner, self.database_sync, self.topic = owner, database_sync, topic
        self.source, self.failures = Notifications(), 0
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
        gone: set[int] = set()
        while not self.owner.dropped.empty():
            gone |= self.owner.dropped.get()
        return {(self.topic, number) for number in gone}

    def deal(self, records: Sequence[Record]) -> Iterable[tuple[None, list[Record]]]:
        return [(None, list(records))] if records else []

    def submit(self, _to: object, batch: RecordBatch, timeout: float) -> bool:
        """Hand over a batch; False when enough is with the owner still after `timeout` seconds."""
        self._raise_failure()
        if batch.prepared is None and not self._prepare(batch, timeout):
            return False
        size = len(batch.records)
        with self._room:
            if not self._room.wait_for(self._has_room, timeout):
                return False
            self.sequence += 1
            self._records += size
        self.owner.post(self.owner.take, batch.prepared, partial(self._settled, size))
        return True

    def _prepare(self, batch: RecordBatch, timeout: float) -> bool:
        """Decode what could not be decoded before; False when the schema registry is still away."""
        try:
            batch.prepared = self.source.prepare(batch)
        except RegistryUnavailable as error:
            self.waiting, self.failures = error, self.failures + 1
            wait_for_rerun(self.source.name, error, Remedy.WAIT, self.failures, longest=timeout)
            return False
        self.waiting, self.failures = None, 0
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

    def beat(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None:
        passed = {tp[1]: end.passed for tp, end in ends.items() if end.passed}
        if passed:
            self.owner.post(self.owner.passed, passed)
        self.database_sync.reached(ends)

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
        self.database_sync.close()
        self.owner.pages.close()
        self.owner.repairs.rereader.close()
        self.owner.write_behind.close(patience=0.5)

    def _raise_failure(self) -> None:
        if self.owner.failure is not None:
            raise self.owner.failure


class TransactionCommitter:
    """Offsets travel in the owner's transactions; this only waits for the one in hand before partitions go."""

    def __init__(self, consumer: client.Client, owner: PartitionOwner) -> None:
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

    def __init__(self, consumer: client.Client, owner: PartitionOwner, sender: PlainSender) -> None:
        super().__init__(consumer, owner)
        self.sender = sender

    def commit_soon(self) -> bool:
        if offsets := self._new():
            self.consumer.commit_async(offsets)
        return bool(offsets)

    def commit_now(self) -> None:
        if offsets := self._new():
            try:
                self.consumer.commit(offsets, timeout_ms=5_000)
            except client.KafkaError as error:
                log.warning("offset_commit_failed", error=str(error))

    async def commit_inside(self) -> None:
        await super().commit_inside()
        if offsets := self._new():
            try:
                await internals.commit_inside(self.consumer, offsets, timeout_ms=5_000)
            except client.KafkaError as error:
                log.warning("offset_commit_failed", error=str(error))

    def _new(self) -> client.Offsets:
        offsets: dict[TopicPartition, int] = {}
        while not self.sender.offsets.empty():
            offsets |= self.sender.offsets.get()
        mine = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in offsets]
        return {tp: client.OffsetAndMetadata(offsets[tp.topic, tp.partition], "", -1) for tp in mine}


class OwnerFollower(Follower):
    """Tells the owner what becomes of the membership."""

    def __init__(
        self, owner: PartitionOwner, placing: RestoredPlacing, group: str, instance: str,
        on_assigned: Callable[[set[int] | None, int], None] = lambda _numbers, _generation: None,
    ) -> None:  # fmt: skip
        self.owner, self.placing, self.on_assigned = owner, placing, on_assigned
        self.group, self.instance = group, instance

    def assigned(self, partitions: set[TopicPartition], metadata: client.GroupMetadata) -> None:
        self.placing.epoch = metadata.generation_id
        self.placing.forget({number for _topic, number in partitions})
        self.owner.member = metadata
        self.owner.post(self.owner.assigned, metadata)
        self.on_assigned({number for _topic, number in partitions}, metadata.generation_id)

    def released(self, partitions: set[TopicPartition], lost: bool) -> None:
        gone = {number for _topic, number in partitions}
        self.placing.forget(gone)
        self.owner.post(self.owner.give_up, gone)
        self.on_assigned(None, -1)

    def recounted(self, topic: str, before: int, now: int) -> None:
        raise ConsumerStopped(
            f"{topic} has {now} partitions, at first it had {before}: a customer has the same partition in all four "
            "topics, and keeps it; docs/throttler-run.md says how to add partitions"
        )

    def left(self) -> None:
        # Who was fenced would remove the process that has its name now.
        if self.instance and not self.owner.doubted:
            remove_static_member(self.group, self.instance, limit=2.0)
