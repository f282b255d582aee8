"""A thread that reads lanes back from Kafka while its process goes on polling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from django.conf import settings

from config.kafka import client
from config.kafka.positions import Log
from config.kafka.reader import MissingTopic, ReadConnection, Reader
from config.telemetry.logs import log
from throttler.lanes.restore import RefusedPartition, RestoredPartition, restored
from throttler.lanes.state import PARTITION_KEY

SLICE = 1.0  # seconds an offset that is pending is waited for, before anything else is looked at
GLANCE = 0.1  # the same while other partitions are being read
PAUSE = 0.5  # seconds between two tries while the broker is away
KEPT = 60.0  # seconds the connection outlives its last use
LARGE = {"fetch_max_bytes": 16_000_000, "max_partition_fetch_bytes": 4_000_000, "max_poll_records": 1_000_000}
SOON = {"retry_backoff_ms": 20}  # the client waits so long between two questions about metadata: there are three

Result = RestoredPartition | RefusedPartition


@dataclass
class Restore:
    """One partition in work: what is known of its input, and its changelog as far as it was read."""

    asking: int
    log: Log | None = None  # once its committed offset is known
    newest: dict[bytes, bytes | None] = field(default_factory=dict)
    written_ms: int = 0  # the broker's time of the partition's own record


class RestoreThread:
    """Restores the partitions it is asked for; topics and group are full names.

    For each partition the committed offset comes first, which waits for a transaction that may commit another, then
    the end of the changelog behind every open transaction, and then everything committed up to there. What a dead
    owner leaves open therefore delays a restore until the broker ends it, and can neither hide what was committed nor
    come later. `observe` is told how many seconds each restore took.
    """

    def __init__(
        self, input_topic: str, changelog_topic: str, group: str, *, accept_reset: bool = False,
        observe: Callable[[float], None] = lambda _seconds: None,
    ) -> None:  # fmt: skip
        self.input_topic, self.changelog_topic, self.group = input_topic, changelog_topic, group
        self.accept_reset, self.observe = accept_reset, observe
        self._lock = threading.Lock()
        self._asked: dict[int, int] = {}
        self._askings = 0
        self._done: dict[int, Result] = {}
        self._failure: BaseException | None = None
        self._closed, self._wake = False, threading.Event()
        self._worker = _Worker(self)
        self._thread = threading.Thread(target=self._run, name="restore", daemon=True)
        self._thread.start()

    def ask(self, partitions: set[int]) -> None:
        """Restore these; one that is in work already starts over."""
        with self._lock:
            self._askings += 1
            self._asked |= dict.fromkeys(partitions, self._askings)
            self._drop_done(partitions)
        self._wake.set()

    def ready(self) -> dict[int, Result]:
        """What was finished since the last call. Raises what ended the thread: a bug, or a right that is missing."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            done, self._done = self._done, {}
        return done

    def forget(self, partitions: set[int]) -> None:
        """These belong to somebody else now."""
        with self._lock:
            for number in partitions:
                self._asked.pop(number, None)
            self._drop_done(partitions)
        self._wake.set()

    def close(self) -> None:
        """End the thread; one that waits for the broker ends by itself a few seconds later."""
        self._closed = True
        self._wake.set()
        self._thread.join(2 * SLICE)

    def _drop_done(self, partitions: set[int]) -> None:
        for number in partitions:
            self._done.pop(number, None)

    # -- The thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                if not self._worker.round(self._wanted()):
                    self._rest()
        except BaseException as error:  # noqa: BLE001 (whoever asks for what is ready has to know)
            self._failure = error
        finally:
            self._worker.disconnect()

    def _wanted(self) -> dict[int, int]:
        self._wake.clear()
        with self._lock:
            return dict(self._asked)

    def _rest(self) -> None:
        if self._closed:  # before its wake-up was cleared
            return
        if not self._wake.wait(KEPT):
            self._worker.disconnect()
            self._wake.wait()

    def pause(self) -> None:
        """Wait a moment, as the broker is away."""
        deadline = time.monotonic() + PAUSE
        while not self._closed and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def hand_over(self, number: int, asking: int, result: Result) -> None:
        """The result, unless the partition was asked for again or forgotten meanwhile."""
        with self._lock:
            if self._asked.get(number) == asking:
                del self._asked[number]
                self._done[number] = result


class _Worker:
    """What the thread does, round by round; only the thread touches it."""

    def __init__(self, of: RestoreThread) -> None:
        self.of = of
        self.connection: ReadConnection | None = None
        self.changelog: Reader | None = None
        self.work: dict[int, Restore] = {}
        self.away = self.warned = False
        self.began, self.partitions, self.lanes = 0.0, 0, 0

    def round(self, wanted: dict[int, int]) -> bool:
        """Work for a second at most, longer when the broker is away; False: there is nothing to do."""
        if wanted and not self.work:
            self.began, self.partitions, self.lanes = time.monotonic(), 0, 0
        self._take(wanted)
        if not self.work:
            return False
        try:
            reader = self._connect()
            self._ask_for_offsets(reader)
            self._read(reader)
            self.away = False
        except MissingTopic as error:
            self._refuse(str(error))
        except client.FATAL:
            raise
        except client.DamagedBatch as error:
            self._refuse_one(error.place[1], str(error))
        except client.KafkaError as error:
            self._broker_is_away(error)
        self._hand_over()
        return True

    def disconnect(self) -> None:
        if (connection := self.connection) is not None:
            self.connection = self.changelog = None
            connection.close()

    def _connect(self) -> Reader:
        if self.connection is None:
            self.connection = ReadConnection(self.of.group, **LARGE, **SOON).only_newest()
        if self.changelog is None:
            self.changelog = Reader(self.of.changelog_topic, (), self.connection)
        return self.changelog

    def _take(self, wanted: dict[int, int]) -> None:
        gone = {number for number, restore in self.work.items() if wanted.get(number) != restore.asking}
        for number in gone:
            del self.work[number]
        if gone and self.changelog is not None:
            self.changelog.drop(gone)
        for number in wanted.keys() - self.work.keys():
            self.work[number] = Restore(wanted[number])

    def _ask_for_offsets(self, reader: Reader) -> None:
        waiting = [number for number, restore in self.work.items() if restore.log is None]
        if not waiting:
            return
        offsets = reader.connection.committed(self.of.input_topic, waiting, GLANCE if reader.reading else SLICE)
        if offsets.pending and not self.warned:
            log.warning("committed_offset_pending", group=self.of.group, partitions=sorted(offsets.pending))
        self.warned = bool(offsets.pending)
        # In this order: what is committed after the changelog's end was taken moves the offset as well.
        logs = reader.connection.logs(self.of.input_topic, offsets.settled) if offsets.settled else {}
        reader.add(offsets.settled)
        for number, log_of_input in logs.items():
            self.work[number].log = replace(log_of_input, committed=offsets.settled[number])

    def _read(self, reader: Reader) -> None:
        if not reader.reading:
            return
        for number, records in reader.step(GLANCE).items():
            restore = self.work[number]
            for batch in records:
                restore.newest |= batch.values
                if PARTITION_KEY in batch.values:
                    restore.written_ms = batch.timestamp

    def _hand_over(self) -> None:
        if self.changelog is None:
            return
        reading = {tp.partition for tp in self.changelog.reading}
        for number, restore in list(self.work.items()):
            if restore.log is not None and number not in reading:
                self._finish(number, self._result(number, restore, restore.log))
        if not self.work:
            seconds = time.monotonic() - self.began
            self.of.observe(seconds)
            log.info("lanes_restored", partitions=self.partitions, lanes=self.lanes, seconds=round(seconds, 3))

    def _result(self, number: int, restore: Restore, of: Log) -> Result:
        newest = {key: value for key, value in restore.newest.items() if value is not None}
        return restored(
            number, of, newest, self.of.accept_reset, transactions=settings.KAFKA_TRANSACTIONS,
            written_ms=restore.written_ms, now_ms=time.time_ns() // 1_000_000,
        )  # fmt: skip

    def _finish(self, number: int, result: Result) -> None:
        asking = self.work.pop(number).asking
        if isinstance(result, RestoredPartition):
            self.partitions += 1
            self.lanes += len(result.lanes)
            if result.foreign:
                topic = self.of.changelog_topic
                log.warning("foreign_records_skipped", topic=topic, partition=number, records=result.foreign)
        self.of.hand_over(number, asking, result)

    def _refuse_one(self, number: int, alarm: str) -> None:
        if self.changelog is not None:
            self.changelog.drop({number})
        if number in self.work:
            self._finish(number, RefusedPartition(number, alarm))

    def _refuse(self, alarm: str) -> None:
        """A topic that is missing is not asked for again on this connection."""
        self.disconnect()
        for number in list(self.work):
            self._finish(number, RefusedPartition(number, alarm))

    def _broker_is_away(self, error: Exception) -> None:
        if not self.away:
            log.warning("broker_unavailable", worker="restore", error=str(error))
        self.away = True
        self.disconnect()
        for number, restore in self.work.items():
            self.work[number] = Restore(restore.asking)
        self.of.pause()
