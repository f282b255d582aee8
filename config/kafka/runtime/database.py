"""The consumer of a flow whose truth is the database: writers, watermarks, offsets committed behind them."""

from __future__ import annotations

import threading
from typing import Any

from config.kafka.positions import Positions
from config.kafka.runtime.consumer import Consumer
from config.kafka.runtime.offsets import Offsets
from config.kafka.runtime.placing import WatermarkPlacing
from config.kafka.runtime.ports import Parts
from config.kafka.runtime.writer import Handler
from config.kafka.runtime.writers import Writers
from config.kafka.topics import topic_name


def consumer_of(
    handler: Handler,
    positions: Positions,
    stop: threading.Event,
    *,
    accept_reset: bool = False,
    writers: int = 1,
) -> Consumer:
    """A consumer that stores with `writers` transactions at once; the watermark in the database is the truth."""
    group = topic_name(handler.group)
    topics = [topic_name(topic) for topic in handler.topics]

    def parts_of(consumer: Any) -> Parts:
        backend = Writers(handler, positions, group, writers)
        placing = WatermarkPlacing(handler, positions, group, topics, backend, stop, accept_reset=accept_reset)
        return Parts(backend, Offsets(consumer, backend), placing, accept_damage=accept_reset)

    return Consumer(handler, parts_of, stop)
