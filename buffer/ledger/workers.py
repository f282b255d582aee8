"""The worker of the ledger, as its command starts it."""

from __future__ import annotations

import threading

from buffer.ledger.handler import Track
from config.kafka.runtime import consumer_of
from config.kafka.runtime.writers import parallel_writers
from outbox.letters.handler import AlarmedWatermarks


def track(
    stop: threading.Event, *, accept_reset: bool = False, once: bool = False, until_idle: float | None = None
) -> None:
    """Read all stock topics until `stop`."""
    handler = Track()
    positions = AlarmedWatermarks(handler.source)
    consumer = consumer_of(handler, positions, stop, accept_reset=accept_reset, writers=parallel_writers())
    consumer.run(once=once, until_idle=until_idle)
