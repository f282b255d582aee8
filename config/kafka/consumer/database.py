"""The consumer of a flow whose truth is the database: starts at watermarks, commits what is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from django.db import close_old_connections

from config.database.clock import database_now
from config.kafka import client, internals
from config.kafka.consumer.loop import Consumer
from config.kafka.consumer.ports import Backend, Parts
from config.kafka.consumer.writer import Handler, Writers
from config.kafka.positions import Log, Mark, Positions, Start, Stopped, TopicPartition, gap_end, of_one_topic, start_of
from config.kafka.topics import topic_name
from config.telemetry.logs import log

# -- Where partitions start ----------------------------------------------------------------------------------
LIMIT = 1.0  # seconds a round may take away from polling


class WatermarkPlacing:
    """Starts at the smaller of committed offset and watermark, or stops the partition with an alarm."""

    def __init__(
        self, handler: Handler, positions: Positions, group: str, topics: list[str], backend: Backend,
        stop: threading.Event, *, accept_reset: bool = False,
    ) -> None:  # fmt: skip
        self.handler, self.positions, self.group, self.topics = handler, positions, group, topics
        self.backend, self.stop, self.accept_reset = backend, stop, accept_reset
        self.logged = False  # that a committed offset is pending
        self._resets: dict[TopicPartition, Mark] = {}  # where those begin again whose reset is accepted

    def place(self, consumer: client.Client, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
        """All of `waiting`, or none of them when the writers, the database or the broker need longer."""
        deadline = time.monotonic() + LIMIT
        if not self.backend.drain(patience=LIMIT / 2):
            return {}  # the batches in hand still move the watermarks that decide where to start
        try:
            return self._place(consumer, waiting, deadline)
        except (client.RetriableError, *client.FATAL):
            raise
        except Exception as error:  # noqa: BLE001 (the database is away: try again after the next poll)
            self._wait(error)
            return {}

    def confirmed(self, starts: Mapping[TopicPartition, Start | Stopped]) -> bool:
        try:
            close_old_connections()
            now = database_now()
            if alarms := {tp: start.alarm for tp, start in starts.items() if isinstance(start, Stopped)}:
                self.positions.stop(self.group, alarms, now)
            accepted = {tp: start.accepts for tp, start in starts.items() if isinstance(start, Start)}
            if accepted:
                self.positions.reset(self.group, {tp: self._resets[tp] for tp in accepted}, now)
        except Exception as error:  # noqa: BLE001 (as above)
            self._wait(error)
            return False
        for (topic, partition), alarm in accepted.items():
            log.warning("reset_accepted", topic=topic, partition=partition, was=alarm)
        return True

    def _wait(self, error: Exception) -> None:
        log.warning("positions_unavailable", worker=self.handler.name, error=str(error).strip())
        self.stop.wait(LIMIT)

    def _place(
        self, consumer: client.Client, waiting: set[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, Start | Stopped]:
        close_old_connections()
        marks = self.positions.load(self.group, self.topics)
        ids = {topic: internals.topic_id_of(consumer, topic) for topic in self.topics}
        logs = self._logs_of(consumer, waiting, ids, deadline)
        if logs is None:
            return {}
        marks = of_one_topic(marks, logs)
        gaps = {tp: gap_end(marks.get(tp), logs[tp]) for tp in waiting}
        if any(gaps.values()):
            self.handler.regain(ids, {tp: end for tp, end in gaps.items() if end})
        starts = {tp: self._start_of(tp, marks.get(tp), logs[tp]) for tp in sorted(waiting)}
        new = {tp for tp in waiting if marks.get(tp) is None and logs[tp].committed is None and logs[tp].begin}
        if new:  # what lies below the beginning of the log was never missed
            self.positions.advance(
                self.group, {tp: Mark(logs[tp].topic_id, logs[tp].begin) for tp in sorted(new)}, database_now()
            )
        return starts

    def _logs_of(
        self, consumer: client.Client, waiting: set[TopicPartition], ids: Mapping[str, str], deadline: float
    ) -> dict[TopicPartition, Log] | None:
        """What the broker says of these partitions; None while a transaction with offsets of the group is open."""

        def left() -> int:
            return max(50, round((deadline - time.monotonic()) * 1000))

        tps = [client.TopicPartition(*tp) for tp in waiting]
        begins = consumer.beginning_offsets(tps, timeout_ms=left())
        ends = consumer.end_offsets(tps, timeout_ms=left())
        try:
            committed = internals.committed_of(consumer, tps, timeout_ms=left())
        except client.KafkaTimeoutError:  # the same broker has just answered twice
            if not self.logged:
                log.warning("committed_offset_pending", worker=self.handler.name, group=self.group)
            self.logged = True
            return None
        self.logged = False
        return {tp: Log(ids[tp.topic], begins[tp], ends[tp], committed.get(tp)) for tp in tps}

    def _start_of(self, tp: TopicPartition, mark: Mark | None, kafka_log: Log) -> Start | Stopped:
        start = start_of(mark, kafka_log)
        if isinstance(start, Stopped) and self.accept_reset:
            self._resets[tp] = Mark(kafka_log.topic_id, kafka_log.begin)
            return Start(kafka_log.begin, accepts=start.alarm)
        if isinstance(start, Start) and start.warning:
            log.warning("position_unknown", topic=tp[0], partition=tp[1], offset=start.offset, why=start.warning)
        return start


# -- Commits -------------------------------------------------------------------------------------------------
LAST_MS = 2_000  # at the end of a process


class Offsets:
    """Commits what the writers have finished. The watermark in the database is the truth; this tells Kafka's tools."""

    def __init__(self, consumer: client.Client, writers: Writers) -> None:
        self.consumer = consumer
        self.writers = writers
        self._written: dict[TopicPartition, Mark] = {}

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
                self.consumer.commit(offsets, timeout_ms=LAST_MS)
            except client.KafkaError as error:
                _failed(error)

    async def commit_inside(self) -> None:
        """The same from inside a rebalance callback."""
        if offsets := self._new():
            try:
                await internals.commit_inside(self.consumer, offsets, timeout_ms=5_000)
            except client.KafkaError as error:
                _failed(error)

    def _new(self) -> client.Offsets:
        new: dict[TopicPartition, Mark] = {}
        for done in self.writers.finished():
            marks = {tp: Mark(done.topic_ids.get(tp[0], ""), end) for tp, end in done.ends.items()}
            if not done.sequence:  # what was passed is old news where a later batch is written
                marks = {tp: mark for tp, mark in marks.items() if self._is_news(tp, mark)}
            new |= marks
            self._written |= marks
        # A batch may be done after its partition was taken away: its new owner knows better. And after its topic was
        # created again: there the offset is another place.
        mine = [tp for tp in self.consumer.assignment() if self._is_there(tp, new.get(tp))]
        return {tp: client.OffsetAndMetadata(new[tp].next_offset, "", -1) for tp in mine}

    def _is_news(self, tp: TopicPartition, mark: Mark) -> bool:
        written = self._written.get(tp)
        return written is None or written.topic_id != mark.topic_id or written.next_offset < mark.next_offset

    def _is_there(self, tp: client.TopicPartition, mark: Mark | None) -> bool:
        if mark is None:
            return False
        return not mark.topic_id or internals.topic_id_of(self.consumer, tp.topic) in ("", mark.topic_id)


def _failed(error: Exception) -> None:
    # Nothing is lost: the next commit, or the watermark at the next start, repairs it.
    log.warning("offset_commit_failed", error=str(error))


# -- The whole -----------------------------------------------------------------------------------------------
def consumer_of(
    handler: Handler, positions: Positions, stop: threading.Event, *, accept_reset: bool = False, writers: int = 1
) -> Consumer:
    """A consumer that stores with `writers` transactions at once; the watermark in the database is the truth."""
    group = topic_name(handler.group)
    topics = [topic_name(topic) for topic in handler.topics]

    def parts_of(consumer: client.Client) -> Parts:
        backend = Writers(handler, positions, group, writers)
        placing = WatermarkPlacing(handler, positions, group, topics, backend, stop, accept_reset=accept_reset)
        return Parts(backend, Offsets(consumer, backend), placing, accept_damage=accept_reset)

    return Consumer(handler, parts_of, stop)
