"""An idempotent producer for messages-in: an outcome for each promise, a new client where an error ended the old one.

kafka-python's idempotent producer takes every error that cannot be retried as fatal for ever. What such an error failed
is sent again one by one, so that the promise that caused it is known, and no other one suffers for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from spillway_client.models import Promise
from spillway_client.options import Options

try:
    import kafka
    from kafka import errors
except ImportError:  # not needed where a connector reads the table
    kafka = None

SENT, REFUSED, FAILED = "sent", "refused", "failed"  # refused for good; failed: to be sent again
FATAL = "fatal"  # maybe the fault of another record: until it has been sent alone


class Outcome(NamedTuple):
    """What became of one promise."""

    state: str
    why: str = ""


class Producer:
    def __init__(self, options: Options) -> None:
        if not options.BOOTSTRAP_SERVERS:
            raise ImproperlyConfigured('SPILLWAY_CLIENT["BOOTSTRAP_SERVERS"]: where is Kafka? Or set DEBEZIUM')
        if kafka is None:
            raise ImproperlyConfigured('relay_promises needs kafka-python: pip install "spillway-client[kafka]"')
        # The broker, or the client, says so of one record, and would say it again.
        self.refusals = (
            errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.InvalidRecordError,
            errors.InvalidTimestampError,
        )  # fmt: skip
        self.options = options
        self.client: Any = None

    def send_all(self, promises: Sequence[Promise], until: float) -> list[Outcome]:
        """Send promises, no two of one aggregate, and wait for all answers: an outcome each, in their order.

        What has not begun to leave by `until` (monotonic) fails.
        """
        outcomes = self._send(promises, until)
        for index, outcome in enumerate(outcomes):
            if outcome.state == FATAL:
                (alone,) = self._send([promises[index]], until)
                outcomes[index] = Outcome(FAILED, alone.why) if alone.state == FATAL else alone
        return outcomes

    def close(self) -> None:
        """End the client with its thread; what it may still hold was not confirmed."""
        client, self.client = self.client, None
        if client is None:
            return
        try:
            client.close(timeout=1)
        except errors.KafkaError:
            client._sender.force_close()  # close() gives up there, and would leave the thread running

    def _send(self, promises: Sequence[Promise], until: float) -> list[Outcome]:
        try:
            self.client = self.client or self._connected()
            self.client.partitions_for(self.options.TOPIC)  # waited for once, not for each promise
        except errors.KafkaError as error:
            self.close()
            place = f"{self.options.TOPIC} at {self.options.BOOTSTRAP_SERVERS}"
            return [Outcome(FAILED, f"{place}: {error!r} (is the broker up, and is there the topic?)")] * len(promises)
        started = [self._outcome(lambda promise=promise: self._begin(promise, until)) for promise in promises]
        deadline = time.monotonic() + self.options.patience
        outcomes = [
            one if isinstance(one, Outcome) else self._outcome(lambda one=one: _stored(one, deadline))
            for one in started
        ]
        if any(outcome.state != SENT for outcome in outcomes):
            self.close()
        if len(promises) > 1:  # an error of the client is that of any record
            return [Outcome(FATAL, why) if state == REFUSED else Outcome(state, why) for state, why in outcomes]
        return outcomes

    def _outcome(self, step: Any) -> Any:
        """What a step of sending returns, or what its error means."""
        try:
            return step()
        except self.refusals as error:
            return Outcome(REFUSED, repr(error)[:500])
        except errors.RetriableError as error:
            return Outcome(FAILED, repr(error)[:500])
        except errors.KafkaError as error:
            return Outcome(FATAL, repr(error)[:500])

    def _begin(self, promise: Promise, until: float) -> Any:
        headers = [("producer", self.options.PRODUCER.encode())] if self.options.PRODUCER else []
        if time.monotonic() > until:
            return Outcome(FAILED, "the lease ended while sending")
        return self.client.send(self.options.TOPIC, promise.envelope(), promise.aggregate.encode(), headers)

    def _connected(self) -> Any:
        milliseconds = int(self.options.patience * 1000)
        options = {
            "client_id": "spillway-client",
            "delivery_timeout_ms": milliseconds,
            "allow_auto_create_topics": False,
            **dict.fromkeys(("request_timeout_ms", "max_block_ms", "bootstrap_timeout_ms"), milliseconds // 2),
            **self.options.KAFKA,
        }
        servers = self.options.BOOTSTRAP_SERVERS.split(",")
        return kafka.KafkaProducer(**options, bootstrap_servers=servers, acks="all", enable_idempotence=True)


def _stored(future: Any, deadline: float) -> Outcome:
    future.get(timeout=max(0.0, deadline - time.monotonic()))
    return Outcome(SENT)
