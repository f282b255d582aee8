"""The flusher: claim what is due, publish what is claimed; nothing is cut before a restore has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from django.db import connection

from buffer.events.models import Bucket
from buffer.flush.claim import claim
from buffer.flush.publish import lease_unsent, publish
from buffer.streams import GROUP, Stream
from config.database.clock import database_now
from config.kafka import Producer, topic_name
from config.kafka.client import KafkaError
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.bookkeeping.watermarks import Watermarks

LONGEST_SLEEP = 1.0
SHORTEST_SLEEP = 0.02


class Flusher:
    """One worker; any number may run side by side."""

    def __init__(
        self, streams: Sequence[Stream], producer: Producer, must_wait: Callable[[], bool] = lambda: False
    ) -> None:
        self.streams = streams
        self.producer = producer
        self.must_wait = must_wait
        self.waiting = False
        self.broker_away = False

    def tick(self) -> int:
        """One round; returns how many batches left and how many buckets were put off."""
        self.waiting = self.must_wait()
        if self.waiting:
            return 0
        started = time.perf_counter()
        done = self._publish_unsent()
        for stream in self.streams:
            # While the broker is away, buckets go on filling: cutting them now would only make small batches.
            if self.broker_away:
                break
            done += self._flush(stream)
        if done:
            metrics.FLUSH_SECONDS.observe(time.perf_counter() - started)
        return done

    def _publish_unsent(self) -> int:
        token, batches = lease_unsent(self.streams)
        if batches:
            self.broker_away = not publish(batches, token, self.producer)
        return 0 if self.broker_away else len(batches)

    def _flush(self, stream: Stream) -> int:
        round_ = claim(stream)
        self.broker_away = not publish(round_.batches, round_.token, self.producer)
        return len(round_.batches)

    def pause(self) -> float:
        """Seconds until the next bucket is due, at most one."""
        if self.waiting:
            return LONGEST_SLEEP
        now = database_now()
        waits = [
            (due - now).total_seconds()
            for stream in self.streams
            for due in Bucket.objects.of_stream(stream.name).waiting().values_list("due_at", flat=True)[:1]
            if due
        ]
        return max(SHORTEST_SLEEP, min([LONGEST_SLEEP, *waits]))


INTERVAL = 1.0  # seconds between two questions to the broker


class Gap:
    """Whether this database remembers less than the group has committed.

    Orders that wait in an old backup may have been sent since with other contents; cut again, they would be sent
    twice. The broker is asked only after a new connection, which may lead to another database, and while a gap is open.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = streams
        self.closed = False
        self.next_look = 0.0

    def is_open(self) -> bool:
        if connection.connection is None:
            self.closed = False
        if not self.closed and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + INTERVAL
            self.closed = not self._behind()
        return not self.closed

    def _behind(self) -> bool:
        try:
            topics = {stream.name: topic_name(stream.topic) for stream in self.streams}
            behind = [name for name, topic in topics.items() if Watermarks().behind(topic_name(GROUP), topic)]
        except KafkaError as error:
            log.warning("broker_unavailable", worker="flush_buffer", error=str(error))
            return True
        if behind:
            log.warning("waits_for_ingestion", streams=behind)
        return bool(behind)
