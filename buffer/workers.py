"""The workers of the buffer, as the commands start them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from buffer.flush import Flusher
from buffer.gap import Gap
from buffer.ingest import Ingest
from buffer.streams import Stream, chosen
from config import loop
from config.kafka import Consumer, Producer
from outbox.watermarks import Watermarks


def ingest(
    names: Sequence[str] | None,
    stop: threading.Event,
    *,
    accept_reset: bool = False,
    once: bool = False,
    until_idle: float | None = None,
) -> None:
    """Read the named streams (default all) until `stop`; one thread per further stream.

    The first failure of any stream stops all of them and is raised: a process never lives half.
    """
    first, *others = chosen(names)
    failures: list[BaseException] = []

    def read(stream: Stream) -> None:
        try:
            consumer = Consumer(Ingest(stream), Watermarks(), stop, accept_reset=accept_reset)
            consumer.run(once=once, until_idle=until_idle)
        except Exception as error:  # noqa: BLE001 (raised by the main thread below)
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=read, args=[stream], name=stream.name) for stream in others]
    for thread in threads:
        thread.start()
    read(first)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def flush(
    names: Sequence[str] | None, stop: threading.Event, *, once: bool = False, until_idle: float | None = None
) -> None:
    """Flush the named streams (default all) until `stop`."""
    producer = Producer()
    streams = chosen(names)
    flusher = Flusher(streams, producer, must_wait=Gap(streams).is_open)
    try:
        loop.run(flusher.tick, stop, pause=flusher.pause, once=once, until_idle=until_idle)
    finally:
        producer.close()
