"""Sample traffic at a steady rate."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from config.environment.env import BadSetting
from config.flows import Deed, Sample, flows
from config.kafka import Failed, Outgoing, Producer
from config.telemetry.logs import log

TICK = 0.25
Traffic = Iterator[Sample | Deed]


@dataclass
class Simulated:
    """How many samples were made, and how many of them went in."""

    made: int = 0
    sent: int = 0

    @property
    def failed(self) -> int:
        return self.made - self.sent


def rate_argument(text: str) -> float:
    """Samples a second, for a command line."""
    if not 0 < (rate := float(text)) < math.inf:
        raise ValueError
    return rate


def count_argument(text: str) -> int:
    """A number of samples, for a command line."""
    if (count := int(text)) < 0:
        raise ValueError
    return count


def simulate(stop: threading.Event, flow: str | None, rate: float, count: int | None, seed: int) -> Simulated:
    """Send `rate` samples a second of each flow until `stop` or `count`."""
    sources = [found.samples(seed) for found in flows() if flow in (None, found.name)]
    if not sources:
        raise BadSetting(f"--flow {flow}: no such flow")
    producer = Producer()
    samples = itertools.islice(_alternate(sources), None if count is None else count * len(sources))
    try:
        return _send_steadily(samples, rate * len(sources), producer, stop)
    finally:
        producer.close()


def _send_steadily(samples: Traffic, rate: float, producer: Producer, stop: threading.Event) -> Simulated:
    started, found = time.monotonic(), Simulated()
    while not stop.is_set():
        due = (time.monotonic() - started + TICK) * rate
        part = list(itertools.islice(samples, max(1, int(due) - found.made)))
        if not part:
            break
        found.made += len(part)
        found.sent += _send(part, producer)
        stop.wait(max(0.0, started + found.made / rate - TICK - time.monotonic()))
    return found


def _send(part: list[Sample | Deed], producer: Producer) -> int:
    """Produce the records of a part and do its deeds; returns how many of both went in."""
    outcomes = producer.send_all([_message(sample) for sample in part if isinstance(sample, Sample)])
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    if refused:
        log.warning("samples_failed", number=len(refused), error=refused[0].error)
    deeds = [sample for sample in part if isinstance(sample, Deed)]
    return len(outcomes) - len(refused) + sum(_do(deed) for deed in deeds)


def _do(deed: Deed) -> bool:
    try:
        deed.run()
    except DatabaseError as error:
        log.warning("sample_failed", error=str(error).strip())
        return False
    return True


def _message(sample: Sample) -> Outgoing:
    return Outgoing(sample.topic, sample.key, sample.value, sample.headers)


def _alternate(sources: Sequence[Traffic]) -> Traffic:
    """One sample of each flow in turn; a flow without samples takes no turn."""
    peeked = [(first, source) for source in sources for first in itertools.islice(source, 1)]
    yield from (first for first, _source in peeked)
    for row in zip(*(source for _first, source in peeked), strict=False):
        yield from row
