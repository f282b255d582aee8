"""Where partitions start whose truth is a watermark in the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from django.db import close_old_connections

from config.database.clock import database_now
from config.kafka import client, internals
from config.kafka.positions import (
    Log,
    Mark,
    Positions,
    Start,
    Stopped,
    TopicPartition,
    gap_end,
    of_one_topic,
    start_of,
)
from config.kafka.runtime.ports import Backend
from config.kafka.runtime.writer import Handler
from config.telemetry.logs import log

LIMIT = 1.0  # seconds a round may take away from polling


class WatermarkPlacing:
    """Starts at the smaller of committed offset and watermark, or stops the partition with an alarm."""

    def __init__(
        self, handler: Handler, positions: Positions, group: str, topics: list[str], backend: Backend,
        stop: threading.Event, *, accept_reset: bool = False,
    ) -> None:  # fmt: skip
        self.handler, self.positions, self.group, self.topics = handler, positions, group, topics
        self.backend, self.stop, self.accept_reset = backend, stop, accept_reset
        self.told = False  # that an offset is pending
        self._resets: dict[TopicPartition, Mark] = {}  # where those begin again whose reset is accepted

    def place(self, consumer: Any, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
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
        self, consumer: Any, waiting: set[TopicPartition], deadline: float
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
        self, consumer: Any, waiting: set[TopicPartition], ids: Mapping[str, str], deadline: float
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
            if not self.told:
                log.warning("committed_offset_pending", worker=self.handler.name, group=self.group)
            self.told = True
            return None
        self.told = False
        return {(tp.topic, tp.partition): Log(ids[tp.topic], begins[tp], ends[tp], committed.get(tp)) for tp in tps}

    def _start_of(self, tp: TopicPartition, mark: Mark | None, kafka_log: Log) -> Start | Stopped:
        start = start_of(mark, kafka_log)
        if isinstance(start, Stopped) and self.accept_reset:
            self._resets[tp] = Mark(kafka_log.topic_id, kafka_log.begin)
            return Start(kafka_log.begin, accepts=start.alarm)
        if isinstance(start, Start) and start.warning:
            log.warning("position_unknown", topic=tp[0], partition=tp[1], offset=start.offset, why=start.warning)
        return start
