"""The producer: many messages, one verdict each, and a client that is replaced when an error kills it.

kafka-python's idempotent producer treats every non-retriable error as fatal for ever: after one refused
record all later sends fail with a copy of its error, and after one that expired on its second try nothing
leaves any more (docs/adr/0004). Here the client is rebuilt; what an error killed is sent again one by one
until the culprit is known.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from config.kafka import client, producer_internals
from config.kafka.producer_internals import FutureRecordMetadata
from config.telemetry import metrics
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

OVERHEAD = 512  # upper bound of what a record batch adds to one message


@dataclass(frozen=True)
class Outgoing:
    """What to produce; `topic` is the full name."""

    topic: str
    key: str
    value: bytes
    headers: Sequence[tuple[str, bytes | None]] = field(default=())

    @property
    def size(self) -> int:
        """Bytes on the wire, at most."""
        headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key.encode()) + len(self.value) + headers + OVERHEAD


@dataclass(frozen=True)
class Sent:
    """Acknowledged by all replicas."""

    partition: int
    offset: int


@dataclass(frozen=True)
class Refused:
    """The broker will never take this message."""

    error: str


@dataclass(frozen=True)
class Failed:
    """Not known to be stored; try again with the same bytes."""

    error: str


SendResult = Sent | Refused | Failed
TOO_LATE = Failed("it was not sent: the process was held up for longer than it may take")


class Producer:
    """Sends messages and waits for their acknowledgement; safe to keep for the life of a process."""

    def __init__(self, *, patience: float = 35.0, **overrides: object) -> None:
        self.patience = patience
        self.overrides = overrides
        self._client: client.kafka.KafkaProducer | None = None
        self._lock = threading.Lock()

    def send_all(self, messages: Sequence[Outgoing], until: float = math.inf) -> list[SendResult]:
        """One outcome per message, in their order. Raises nothing the broker can cause.

        What the client does not have by `until` (monotonic), or after `patience`, fails: whoever was frozen on the way
        here has lost by now what allowed it to send.
        """
        with self._lock:
            outcomes = zip(messages, self._send(messages, until), strict=True)
            return [
                self._send_alone(message, until) if isinstance(outcome, _Fatal) else outcome
                for message, outcome in outcomes
            ]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics that something was just sent to; without those that nobody says."""
        with self._lock:
            return producer_internals.topic_ids(self._client, topics, self.patience / 10) if self._client else {}

    def close(self) -> None:
        """Give the connection back; what was sent has been waited for."""
        with self._lock:
            self._discard()

    def _send_alone(self, message: Outgoing, until: float) -> SendResult:
        (outcome,) = self._send([message], until)
        return Refused(outcome.error) if isinstance(outcome, _Fatal) else outcome

    def _send(self, messages: Sequence[Outgoing], until: float) -> list[SendResult | _Fatal]:
        absent: dict[str, Failed] = {}  # topics whose partitions nobody knew: each is waited for once
        until = min(until, time.monotonic() + self.patience)
        started = [absent.get(message.topic) or self._start(message, absent, until) for message in messages]
        deadline = time.monotonic() + self.patience
        if self._client is not None:
            with suppress(client.KafkaError):  # every message has a verdict of its own
                self._client.flush(timeout=self.patience)  # else every few linger and leave as a request of their own
        outcomes = [self._result_of(future, deadline) if hasattr(future, "is_done") else future for future in started]
        if any(map(_is_the_end, started, outcomes)):
            metrics.PRODUCER_REBUILT.inc()
            log.warning("producer_rebuilt")
            self._discard()  # the next message has a new one
        return outcomes

    def _start(
        self, message: Outgoing, absent: dict[str, Failed], until: float
    ) -> SendResult | _Fatal | FutureRecordMetadata:
        if message.size > client.MAX_REQUEST_BYTES:
            return Refused(f"{message.size} bytes, the broker takes {client.MAX_REQUEST_BYTES}")
        try:
            if self._client is None:
                self._client = client.new_producer(**self.overrides)
            key, headers = message.key.encode(), list(message.headers)
            if time.monotonic() > until:
                return TOO_LATE
            return producer_internals.send_record(self._client, message.topic, None, key, message.value, headers)
        except client.KafkaTimeoutError as error:
            why = Failed(f"{message.topic}: {error} (is the broker up, and has create_topics made the topic?)")
            return absent.setdefault(message.topic, why)
        except client.NotLetIn as error:  # nor will the next message be
            return absent.setdefault(message.topic, Failed(one_line(error)[:500]))
        except client.RetriableError as error:
            return Failed(one_line(error)[:500])
        except client.KafkaError as error:
            return _Fatal(one_line(error)[:500])

    def _result_of(self, future: FutureRecordMetadata, deadline: float) -> SendResult | _Fatal:
        """Wait for one future; flush() alone would not do, it returns too early when a batch was split."""
        try:
            stored = future.get(timeout=max(0.0, deadline - time.monotonic()))
        except client.RetriableError as error:
            return Failed(one_line(error)[:500])
        except client.KafkaError as error:
            return _Fatal(one_line(error)[:500])
        return Sent(stored.partition, stored.offset)

    def _discard(self) -> None:
        if self._client is not None:
            producer_internals.close_producer(self._client, timeout=1)  # all that was sent has been waited for
            self._client = None


@dataclass(frozen=True)
class _Fatal:
    """An error that ended the client; sending the messages one by one finds the one that caused it."""

    error: str


def _is_the_end(started: object, outcome: object) -> bool:
    """Whether the client is unusable: after a fatal error, or a message it accepted that was not answered in time."""
    return isinstance(outcome, _Fatal) or (isinstance(outcome, Failed) and outcome is not started)
