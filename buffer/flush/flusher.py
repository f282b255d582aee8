"""The flusher: claim what is due, publish what is claimed, again at once while there is more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from buffer.events.models import Bucket
from buffer.flush.claim import claim
from buffer.flush.publish import lease_unsent, publish
from buffer.streams import Stream
from config.database.clock import database_now
from config.kafka import Producer
from config.telemetry import metrics

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
        ]
        return max(SHORTEST_SLEEP, min([LONGEST_SLEEP, *waits]))
