"""Sample traffic at a steady rate."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

from config.env import BadSetting
from config.flows import Sample, flows
from config.kafka import Failed, Message, Producer
from config.logs import log

TICK = 0.25


def simulate(stop: threading.Event, flow: str | None, rate: float, count: int | None, seed: int) -> int:
    """Send `rate` records a second of each flow until `stop` or `count`; returns how many were acknowledged."""
    sources = [found.samples(seed) for found in flows() if flow in (None, found.name)]
    if not sources:
        raise BadSetting(f"--flow {flow}: no such flow")
    producer = Producer()
    samples = itertools.islice(_alternate(sources), None if count is None else count * len(sources))
    try:
        return _send_steadily(samples, rate * len(sources), producer, stop)
    finally:
        producer.close()


def _send_steadily(samples: Iterator[Sample], rate: float, producer: Producer, stop: threading.Event) -> int:
    started, due, sent = time.monotonic(), 0.0, 0
    while not stop.is_set():
        due = (time.monotonic() - started + TICK) * rate
        messages = [_message(sample) for sample in itertools.islice(samples, max(1, int(due) - sent))]
        if not messages:
            break
        failed = [outcome for outcome in producer.send_all(messages) if isinstance(outcome, Failed)]
        if failed:
            log.warning("samples_failed", number=len(failed), error=failed[0].error)
        sent += len(messages)
        stop.wait(max(0.0, started + sent / rate - TICK - time.monotonic()))
    return sent


def _message(sample: Sample) -> Message:
    return Message(sample.topic, sample.key, sample.value, sample.headers)


def _alternate(sources: list[Iterator[Sample]]) -> Iterator[Sample]:
    for row in zip(*sources, strict=False):
        yield from row
