"""The database half of a consumer: one transaction a batch, run again or bisected; several side by side."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import close_old_connections, connection, transaction

from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for, wait_for_rerun
from config.kafka.positions import LogEnd, Passed, Positions, TopicPartition
from config.kafka.records import Record, RecordBatch
from config.telemetry import metrics, tracing
from config.telemetry.logs import log
from config.telemetry.redaction import trace_of

AT_THE_END = 5.0  # seconds that a process that ends gives what it has in hand


# -- One writer ----------------------------------------------------------------------------------------------
class Handler(ABC):
    """What a flow does with records. `prepare` uses no database; `write` and `park` run in the writer's transaction."""

    name: str
    group: str
    topics: list[str]
    # Whether records that come while the writer is busy become one batch: done sooner, but less is decoded meanwhile.
    gathers = False
    # Whether `write` stores in the relational database. If not, it runs without a transaction, also while that database
    # is away, and must be idempotent.
    in_database = True

    @abstractmethod
    def prepare(self, batch: RecordBatch) -> object:
        """Decode; never raises for bad input (that is a verdict, kept for `write`)."""

    @abstractmethod
    def write(self, batch: RecordBatch, now: datetime) -> None:
        """Store `batch.prepared`, its dead letters and its counters."""

    @abstractmethod
    def park(self, batch: RecordBatch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        """Bury the one record that the database refuses."""

    def pressure(self) -> bool:
        """Whether to stop reading for a while; asked once a second, outside a transaction."""
        return False

    def each_second(self, now: datetime) -> None:  # noqa: B027 (most have nothing to say)
        """Store what belongs to no single batch: about once a second, in a short transaction."""

    def repair(self) -> None:  # noqa: B027 (nothing to make is the usual case)
        """Make the missing partitions of the tables it writes to."""

    def regain(self, topic_ids: Mapping[str, str], gaps: Mapping[TopicPartition, int]) -> None:  # noqa: B027 (as above)
        """The group has committed more than the database remembers; called before reading starts.

        `gaps` holds, per partition, the offset that the database had reached before it was restored.
        """


class Replayable(Handler):
    """A handler whose topic can be replayed: its `write` and `park` leave a `Tally` in the batch."""

    @abstractmethod
    def keys_of(self, batch: RecordBatch) -> Iterable[Hashable]:
        """What the outcome of a prepared batch depends on: records that share no key do not affect each other."""


@dataclass
class Done:
    """A batch that is in the database: its offsets may be committed. Sequence 0: no batch, but positions passed."""

    sequence: int
    ends: Mapping[TopicPartition, int]
    parked: Mapping[tuple[TopicPartition, int], str] = field(default_factory=dict)  # offset: why it became a letter
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # of the topics that the offsets belong to


@dataclass(frozen=True)
class LogEndSeen:
    """The log end offset at a monotonic time, and whether everything below it is written.

    Once it is, so is everything below `passed`, the client's position at that moment.
    """

    end_offset: int
    taken_at: float
    caught_up: bool
    passed: Passed | None = None


class Writer:
    """Runs batches on a thread of its own, so that the next one is polled and decoded meanwhile.

    The drivers release the interpreter while the server works, and the server has a core of its own:
    measured, this is worth 1.5 to 2 times the serial loop.
    """

    def __init__(self, handler: Handler, positions: Positions, group: str) -> None:
        self.handler = handler
        self.positions = positions
        self.group = group  # as the broker knows it, with the prefix
        self.waiting: Exception | None = None  # the database is away, or what a format needs
        self.pressed = False  # the handler asked for a pause
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.finished = 0  # the sequence of the last batch that is in the database
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=1)
        self._late_beat: Mapping[TopicPartition, LogEndSeen] = {}
        self._abandon = threading.Event()
        self._parked: dict[tuple[TopicPartition, int], str] = {}  # of the batch in hand
        self._thread = threading.Thread(target=self._work, name=f"{handler.name}-writer", daemon=True)
        self._thread.start()

    def submit(self, batch: RecordBatch, sequence: int, timeout: float) -> bool:
        """Hand over a batch; False when the one before is still at work after `timeout` seconds."""
        return self._put(lambda: self._finish(batch, sequence), timeout)

    def beat(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None:
        """Record how far the log reaches and ask the handler for its pressure; while busy, after the job at work.

        Batches may follow each other for hours: the pause at the high-water mark must not wait for a gap.
        """
        if not self._put(lambda: self._beat(ends), timeout=0):
            self._late_beat = {**self._late_beat, **ends}

    def drain(self, patience: float, *, ending: bool = False) -> bool:
        """Wait until everything submitted is written; False when `patience` seconds were not enough, or the process is
        `ending` and the database away: what is not written is read again."""
        deadline = time.monotonic() + patience
        while self.busy and time.monotonic() < deadline and not (ending and self.waiting):
            time.sleep(0.005)
        return not self.busy

    @property
    def backlog(self) -> int:
        """Jobs in hand, the one at work included."""
        return self._jobs.unfinished_tasks

    @property
    def busy(self) -> bool:
        return bool(self.backlog)

    def close(self, patience: float = AT_THE_END, join: float = 1.0) -> None:
        """Finish the batch in hand, or abandon it (its transaction rolls back) after `patience` seconds, at once while the
        database is away.

        A server that hangs keeps the thread `join` seconds more; then it ends with the process.
        """
        self.drain(patience, ending=True)
        self.abandon()
        began = time.monotonic()
        if self._put(None, timeout=join):
            self._thread.join(timeout=max(0.0, began + join - time.monotonic()))

    def abandon(self) -> None:
        """Begin nothing any more; what failed is not tried again."""
        self._abandon.set()

    def _put(self, job: Callable[[], None] | None, timeout: float) -> bool:
        try:
            self._jobs.put(job, block=timeout > 0, timeout=timeout or None)
        except queue.Full:
            return False
        return True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001 (the thread must outlive any job; the batch is not committed)
                log.exception("writer_failed", worker=self.handler.name)
            finally:
                late, self._late_beat = self._late_beat, {}
                if late:
                    self._beat(late)
                self._jobs.task_done()
        self._jobs.task_done()
        connection.close()

    def _finish(self, batch: RecordBatch, sequence: int) -> None:
        self._parked = {}
        self._store(batch)
        if not self._abandon.is_set():
            self.done.put(Done(sequence, batch.ends, self._parked, batch.topic_ids))
            self.finished = sequence

    def _store(self, batch: RecordBatch) -> None:
        """Write `batch`, whatever it takes; returns early only when abandoned."""
        attempt = 0
        while not self._abandon.is_set():
            try:
                return self._transact(batch)
            except Exception as error:  # noqa: BLE001 (classified below; nothing is swallowed)
                remedy = remedy_for(error)
                attempt += 1
                if remedy in (Remedy.DATA, Remedy.BUG):
                    return self._bisect(batch, error)
                self._prepare_rerun(remedy, attempt, error)
        return None

    def _transact(self, batch: RecordBatch) -> None:
        if batch.prepared is None:
            batch.prepared = self.handler.prepare(batch)
        started = time.perf_counter()
        links = (tracing.traceparent_in(record.headers) for record in batch.records)
        name, size = f"store {self.handler.name}", len(batch.records)
        with tracing.span(name, "", links=links, kind="consumer", records=size):
            self._write(batch)
        self.waiting = None
        metrics.INGEST_SECONDS.labels(self.handler.name).observe(time.perf_counter() - started)

    def _write(self, batch: RecordBatch) -> None:
        if self.handler.in_database:
            close_old_connections()
            with transaction.atomic():
                now = database_now()
                self.handler.write(batch, now)
                self.positions.advance(self.group, batch.marks, now)
        else:
            self.handler.write(batch, datetime.now(UTC))

    def _bisect(self, batch: RecordBatch, error: BaseException) -> None:
        """Halve until the guilty record is alone, then bury it: one bad row never blocks a partition."""
        if len(batch.records) > 1:
            metrics.BISECTED.labels(self.handler.name).inc()
            for half in batch.halves():
                self._store(half)
            return
        trace = trace_of(error)
        record = batch.records[0]
        log.error("record_refused", worker=self.handler.name, topic=record.topic, partition=record.partition,
                  offset=record.offset, error=str(error))  # fmt: skip
        attempt = 0
        while not self._abandon.is_set():
            try:
                with transaction.atomic():
                    now = database_now()
                    self.handler.park(batch, record, error, trace, now)
                    self.positions.advance(self.group, batch.marks, now)
                self._parked[(record.topic, record.partition), record.offset] = str(error)
                self.waiting = None
                return
            except Exception as failure:  # noqa: BLE001 (an unparked record must not be skipped)
                attempt += 1
                self._prepare_rerun(Remedy.WAIT, attempt, failure)

    def _prepare_rerun(self, remedy: Remedy, attempt: int, error: Exception) -> None:
        if remedy is Remedy.PARTITION:
            log.error("partition_missing", worker=self.handler.name, error=str(error))
            self._try_repair()
        self.waiting = error if remedy is Remedy.WAIT else None
        wait_for_rerun(self.handler.name, error, remedy, attempt, self._abandon.wait)

    def _try_repair(self) -> None:
        try:
            self.handler.repair()
        except Exception:  # noqa: BLE001 (the batch is tried again either way)
            log.exception("repair_failed", worker=self.handler.name)

    def _beat(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None:
        try:
            close_old_connections()
            with transaction.atomic():
                now = database_now()
                reached = {tp: self._reach(end, now) for tp, end in ends.items()}
                self.positions.reach(self.group, reached, now)
                self.handler.each_second(now)
            passed = {tp: end.passed for tp, end in ends.items() if end.passed}
            topic_ids = {topic: mark.topic_id for (topic, _number), mark in passed.items()}
            self.done.put(Done(0, {tp: mark.next_offset for tp, mark in passed.items()}, topic_ids=topic_ids))
            self.pressed = self.handler.pressure()
            self.waiting = None
        except Exception as error:  # noqa: BLE001 (the next beat tries again; idleness is decided by the last one)
            self.waiting = error if remedy_for(error) is Remedy.WAIT else None
            connection.close()
            log.warning("beat_failed", worker=self.handler.name, error=str(error).strip())

    @staticmethod
    def _reach(end: LogEndSeen, now: datetime) -> LogEnd:
        # The log was looked at a moment before the database said what time it is.
        age = timedelta(seconds=max(0.0, time.monotonic() - end.taken_at))
        return LogEnd(end.end_offset, now - age if end.caught_up else None, end.passed)


# -- Several writers -----------------------------------------------------------------------------------------
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

    def deal(self, records: Sequence[Record]) -> Iterator[tuple[Writer, list[Record]]]:
        """Who stores which records of a poll; to be submitted in this order."""
        shares: dict[Writer, list[Record]] = {}
        place: dict[TopicPartition, list[Record]] = {}
        for record in records:
            tp = record.topic, record.partition
            share = place.get(tp)
            if share is None:
                writer = self._under_way(tp) or min(
                    self._all, key=lambda free: (len(shares.get(free, ())), free.backlog)
                )
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

    def beat(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None:
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
    def waiting(self) -> Exception | None:
        """The database is away, or what a format needs."""
        return next((writer.waiting for writer in self._all if writer.waiting), None)

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

    def close(self, patience: float = AT_THE_END) -> None:
        """Finish what is in hand, or abandon it (its transactions roll back) after `patience` seconds, at once while the
        database is away."""
        deadline = time.monotonic() + patience
        for writer in self._all:
            writer.drain(deadline - time.monotonic(), ending=True)
        for writer in self._all:
            writer.abandon()
        for writer in self._all:
            writer.close(patience=0)
