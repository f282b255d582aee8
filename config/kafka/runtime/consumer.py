"""The consumer: poll, decode, hand to the writer, commit what the database has committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import close_old_connections

from config.database.clock import database_now
from config.kafka import client, internals
from config.kafka.positions import (
    Log,
    Mark,
    Positions,
    Stopped,
    TopicPartition,
    gap_end,
    of_one_topic,
    start_of,
)
from config.kafka.records import RecordBatch, cut
from config.kafka.runtime.log_ends import LogEnds
from config.kafka.runtime.offsets import Offsets
from config.kafka.runtime.rebalance import listener_for, logs_of
from config.kafka.runtime.writer import Handler, Writer
from config.kafka.runtime.writers import Writers
from config.kafka.topics import topic_name
from config.telemetry import metrics
from config.telemetry.logs import log

__all__ = ["Consumer", "ConsumerStopped", "Handler"]


class ConsumerStopped(Exception):
    """Every partition this process owns waits for an operator; the text says why."""


class Consumer:
    """Reads the topics of a handler in its group until told to stop.

    1. Assignment: start at the smaller of committed offset and watermark, or stop the partition with an alarm.
    2. Poll and decode batch n + 1 while a writer's thread stores batch n.
    3. Commit offsets only of batches that are in the database; the watermark in the database is the truth.
    4. Revocation: finish and commit the batch in hand before the partition is given up.
    """

    def __init__(
        self, handler: Handler, positions: Positions, stop: threading.Event, *,
        accept_reset: bool = False, writers: int = 1,
    ) -> None:  # fmt: skip
        self.handler, self.positions, self.stop = handler, positions, stop
        self.accept_reset, self.parallel = accept_reset, writers
        self.topics = [topic_name(topic) for topic in handler.topics]
        self.group = topic_name(handler.group)
        self.stopped: dict[TopicPartition, str] = {}
        self.unplaced: set[TopicPartition] = set()
        self.topic_ids: dict[str, str] = {}
        self.pending: list[Any] = []
        self.joined, self.rejoining = False, True
        self.held = self.broker_away = False

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        """Work until `stop`; `once` ends at the log end seen first, `until_idle` after that many quiet seconds."""
        self.consumer = client.new_consumer(self.group)
        self.writers = Writers(self.handler, self.positions, self.group, self.parallel)
        self.offsets = Offsets(self.consumer, self.writers)
        self.log_ends = LogEnds(self.consumer, self.group)
        # Before anything is asked of the topics: else subscribing changes the metadata once more, and the group is
        # joined twice.
        self.consumer.subscribe(self.topics, listener=listener_for(self))
        try:
            self._refuse_missing_topics()
            self._loop(once, until_idle)
        finally:
            self._leave()

    def _loop(self, once: bool, until_idle: float | None) -> None:
        last_work = time.monotonic()
        while not self.stop.is_set():
            waiting = self.rejoining or self.unplaced  # for its partitions, which is not being idle
            if self._round() or waiting:
                last_work = time.monotonic()
            owned = self._owned()
            self._refuse_if_stopped(bool(owned) and owned <= self.stopped.keys())
            quiet = time.monotonic() - last_work
            if self._idle() and ((once and self._reached()) or quiet >= (until_idle or 1e9)):
                break
        self._refuse_if_stopped(once or until_idle is not None)

    def _reached(self) -> bool:
        """Everything that was in the log at first is written; a member without partitions has nothing to read."""
        if self.rejoining:  # it holds none just now, because somebody else joined or left
            return False
        return self.joined and (self.log_ends.reached_first_end or not self.consumer.assignment())

    def _round(self) -> int:
        """One poll and what follows from it; returns how many records it brought."""
        self._hold(self.writers.pressed or self.writers.waiting)
        polled = self._poll(self._patience())
        records = [*self.pending, *polled]
        gathers = self.handler.gathers and self.writers.busy and len(records) < settings.KAFKA_POLL_RECORDS
        self.pending = records if gathers else []
        if self.unplaced:
            self._place()
        if not gathers:
            self._submit_all(records)
            self.log_ends.look(self.writers.sequence, self._resting)
        self._commit()
        if ends := self.log_ends.to_report(self.writers.done_sequence):
            self.writers.beat(ends)
            self.log_ends.reported()
        return len(records)

    def _patience(self) -> int:
        """Milliseconds to poll for.

        kafka-python throws a join away that completes between two calls of poll() and starts another one:
        until the partitions are assigned, a poll must be long and the next one follow at once.
        """
        if self.rejoining:
            return 1000
        return 20 if self.unplaced else 10 if self.pending else 100

    def _poll(self, timeout_ms: int) -> list[Any]:
        try:
            internals.keep_rejoining(self.consumer)
            found = self.consumer.poll(timeout_ms=timeout_ms)
        except (client.OffsetOutOfRangeError, client.NoOffsetForPartitionError):
            self._start_over(self._owned())
            return []
        except client.FATAL:
            raise
        except client.KafkaError as error:
            self._broker_is_away(error)  # whatever the error is, polling joins the group again
            return []
        self._refuse_recreated_topics()
        resting = self._resting
        return [r for tp, part in found.items() if (tp.topic, tp.partition) not in resting for r in part]

    def _submit_all(self, records: list[Any]) -> None:
        shares = self.writers.deal(records)
        parts = [(writer, part) for writer, share in shares for part in cut(share, settings.KAFKA_POLL_BYTES)]
        for number, (writer, part) in enumerate(parts):
            if not self._submit(writer, part):
                # Nothing behind a part that was not written may be written: the watermark would skip it.
                left = [record for _writer, rest in parts[number:] for record in rest]
                self._start_over({(record.topic, record.partition) for record in left})
                return

    def _submit(self, writer: Writer, records: Any) -> bool:
        """Decode a batch and hand it to the writer; while that is busy, keep polling to stay in the group."""
        batch = RecordBatch(records, self.topic_ids)
        try:
            batch.prepared = self.handler.prepare(batch)
        except Exception:  # noqa: BLE001 (the writer prepares again and bisects to the guilty record)
            log.exception("prepare_failed", worker=self.handler.name)
        while not self.writers.submit(writer, batch, timeout=1.0):
            self._hold(True)
            self.pending += self._poll(self._patience() if self.rejoining else 0)
            self._commit()
            if self.stop.is_set() or not self._owned().issuperset(batch.ends):
                return False  # not written, not committed: read again by whoever owns it next
        return True

    def _owned(self) -> set[TopicPartition]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    @property
    def _resting(self) -> set[TopicPartition]:
        return self.stopped.keys() | self.unplaced

    def _start_over(self, partitions: set[TopicPartition]) -> None:
        """Drop what was polled of these partitions and is not with the writer; they are placed anew."""
        self.forget(partitions)
        self.unplaced |= partitions & self._owned()

    # -- assignment ---------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[Any]) -> None:
        """Pause what is new; where to start is decided outside the client's callback, where waiting is allowed."""
        self.joined, self.rejoining = True, False
        for tp in partitions:
            self.consumer.seek(tp, 0)
            self.consumer.pause(tp)
            self.unplaced.add((tp.topic, tp.partition))

    async def revoked(self, partitions: Iterable[Any]) -> None:
        """Finish and commit the batch in hand before another member starts."""
        self.rejoining = True
        limit = time.monotonic() + (0 if self.stop.is_set() else 10)
        while self.writers.busy and time.monotonic() < limit:
            await internals.nap(self.consumer, 0.01)
        await self.offsets.commit_inside()
        self.forget({(tp.topic, tp.partition) for tp in partitions})

    def forget(self, gone: set[TopicPartition]) -> None:
        self.pending = [record for record in self.pending if (record.topic, record.partition) not in gone]
        self.unplaced -= gone
        self.log_ends.forget(gone)
        for tp in gone & self.stopped.keys():
            del self.stopped[tp]

    def _place(self) -> None:
        """Seek every newly assigned partition to its start, or stop it with an alarm."""
        if not self.writers.drain(patience=1.0):
            return  # the batches in hand still move the watermarks that decide where to start
        waiting = self.unplaced & self._owned()
        try:
            close_old_connections()
            marks = self.positions.load(self.group, self.topics)
            self.topic_ids, logs = logs_of(self.consumer, self.topics, waiting)
            marks = of_one_topic(marks, logs)
            gaps = {tp: gap_end(marks.get(tp), logs[tp]) for tp in waiting}
            if any(gaps.values()):
                self.handler.regain(self.topic_ids, {tp: end for tp, end in gaps.items() if end})
            for tp in sorted(waiting):
                self._start(tp, marks.get(tp), logs[tp])
            self.unplaced -= waiting
        except client.RetriableError as error:
            self._broker_is_away(error)
        except Exception as error:  # noqa: BLE001 (the database is away: try again after the next poll)
            log.warning("positions_unavailable", worker=self.handler.name, error=str(error).strip())
            self.stop.wait(1.0)

    def _start(self, tp: TopicPartition, mark: Mark | None, kafka_log: Log) -> None:
        start = start_of(mark, kafka_log)
        if isinstance(start, Stopped) and self.accept_reset:
            log.warning("reset_accepted", topic=tp[0], partition=tp[1], was=start.alarm)
            self.positions.reset(self.group, {tp: Mark(kafka_log.topic_id, kafka_log.begin)}, database_now())
            start = start_of(None, Log(kafka_log.topic_id, kafka_log.begin, kafka_log.end, None))
        if isinstance(start, Stopped):
            self._stop_partitions({tp: start.alarm})
            return
        if start.warning:
            log.warning("position_unknown", topic=tp[0], partition=tp[1], offset=start.offset, why=start.warning)
        self.consumer.seek(client.TopicPartition(*tp), start.offset)
        self.log_ends.started(tp)
        if not self.held:
            self.consumer.resume(client.TopicPartition(*tp))

    # -- trouble ------------------------------------------------------------------------------------

    def _refuse_missing_topics(self) -> None:
        for topic in self.topics:
            if not self.consumer.partitions_for_topic(topic):
                raise ConsumerStopped(f"topic {topic} does not exist: create_topics makes it")

    def _refuse_recreated_topics(self) -> None:
        for topic, known in self.topic_ids.items():
            current = internals.topic_id_of(self.consumer, topic)
            if known and current and current != known:
                self._start_over({tp for tp in self._owned() if tp[0] == topic})
                # A new dictionary: batches under way keep the ids they were read with.
                self.topic_ids = {**self.topic_ids, topic: current}

    def _stop_partitions(self, alarms: dict[TopicPartition, str]) -> None:
        self.consumer.pause(*[client.TopicPartition(*tp) for tp in alarms])
        self.stopped.update(alarms)
        self.positions.stop(self.group, alarms, database_now())
        for (topic, partition), alarm in alarms.items():
            metrics.PARTITION_STOPPED.labels(self.group, topic, str(partition)).set(1)
            log.error("partition_stopped", topic=topic, partition=partition, alarm=alarm)

    def _refuse_if_stopped(self, tell: bool) -> None:
        if tell and self.stopped:
            topic, partition = min(self.stopped)
            raise ConsumerStopped(f"{topic}/{partition}: {self.stopped[topic, partition]}")

    def _broker_is_away(self, error: Exception) -> None:
        if not self.broker_away:
            log.warning("broker_unavailable", worker=self.handler.name, error=str(error))
        self.broker_away = True
        self.stop.wait(0.2)

    def _hold(self, hold: bool) -> None:
        """Pause everything that runs, or let it run again; polling goes on either way."""
        if hold == self.held:
            return
        self.held = hold
        resting = self._resting
        running = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) not in resting]
        (self.consumer.pause if hold else self.consumer.resume)(*running)
        log.info("consumer_paused" if hold else "consumer_resumed", worker=self.handler.name)

    def _commit(self) -> None:
        if self.offsets.commit_soon():
            self.broker_away = False

    def _idle(self) -> bool:
        return not self.unplaced and self.writers.done_sequence == self.writers.sequence

    def _leave(self) -> None:
        self.writers.close()
        self.offsets.commit_now()
        self.consumer.close(autocommit=False)
