"""The workers of the buffer, as the commands start them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from buffer.flush.flusher import Flusher, Gap
from buffer.ingest.handler import Ingest
from buffer.ledger.handler import Track
from buffer.streams import chosen
from config.kafka import Producer
from config.kafka.consumer import consumer_of
from config.kafka.consumer.writer import parallel_writers
from config.processes import worker
from config.telemetry.activity import activity
from outbox.letters.burial import AlarmedWatermarks, LetterHandler


def ingest(
    names: Sequence[str] | None,
    stop: threading.Event,
    *,
    accept_reset: bool = False,
    once: bool = False,
    until_idle: float | None = None,
) -> None:
    """Read the named streams (default all) until `stop`; one thread per further stream."""

    readers = [partial(_read, Ingest(stream), stop, accept_reset, once, until_idle) for stream in chosen(names)]
    worker.together(readers, stop)


def flush(
    names: Sequence[str] | None, stop: threading.Event, *, once: bool = False, until_idle: float | None = None
) -> None:
    """Flush the named streams (default all) until `stop`: while one round is on its way to Kafka, the next is cut."""
    streams = chosen(names)
    activity.hold("flush", [stream.name for stream in streams], "batches")

    def rounds() -> None:
        producer = Producer()
        flusher = Flusher(streams, producer, must_wait=Gap(streams).is_open)
        try:
            worker.run(flusher.tick, stop, pause=flusher.pause, once=once, until_idle=until_idle)
        finally:
            producer.close()

    worker.together([rounds] * parallel_writers(), stop)


def track(
    stop: threading.Event, *, accept_reset: bool = False, once: bool = False, until_idle: float | None = None
) -> None:
    """Read all stock topics until `stop`."""
    _read(Track(), stop, accept_reset, once, until_idle)


def _read(
    handler: LetterHandler, stop: threading.Event, accept_reset: bool, once: bool, until_idle: float | None
) -> None:
    positions = AlarmedWatermarks(handler.source)
    consumer = consumer_of(handler, positions, stop, accept_reset=accept_reset, writers=parallel_writers())
    consumer.run(once=once, until_idle=until_idle)
