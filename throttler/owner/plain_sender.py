"""Sends without transactions, for a broker that has none: at least once, and one process (KAFKA_TRANSACTIONS=off)."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from config.kafka import client, producer_internals
from config.kafka.positions import TopicPartition
from config.kafka.transaction import Committed, RefusedRecord, Unknown, Verdict

Offsets = Mapping[TopicPartition, int]


class PlainSender:
    """Stands in for a `TransactionalProducer`. The offsets of what was acknowledged wait in `offsets` for the polling
    thread, which commits them: a process that is killed in between sends again, and so does one whose broker has
    refused a record, which becomes a letter when it comes again."""

    usable = True  # no outcome makes it useless but Unknown, after which it is rebuilt anyway

    def __init__(self, limit: float = 8.0) -> None:
        self.limit = limit
        self.offsets: queue.SimpleQueue[Offsets] = queue.SimpleQueue()
        self._client: Any = None
        self._sent: list[tuple[Any, RefusedRecord]] = []  # a future, and what is said of its record if it is refused
        self._refused: RefusedRecord | None = None
        self._error = ""

    def rebuild(self, _member: Any = None) -> None:
        """A new client; raises KafkaError: try again later."""
        self.close()
        milliseconds = int(self.limit * 1000)
        self._client = client.new_producer(
            linger_ms=0, delivery_timeout_ms=milliseconds, request_timeout_ms=milliseconds, max_block_ms=milliseconds
        )

    def begin(self) -> None:
        self._sent, self._refused, self._error = [], None, ""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
        if self._error or self._refused:
            return
        record = RefusedRecord(len(self._sent), topic, partition, "")
        try:
            sent = producer_internals.send_record(self._client, topic, partition, key, value, headers)
            self._sent.append((sent, record))
        except client.RECORD_REFUSED as error:
            self._refused = replace(record, reason=_text(error))
        except client.AuthorizationError:
            raise
        except (client.KafkaError, ValueError) as error:
            self._error = _text(error)

    def commit(self, offsets: Offsets, metadata: Any) -> Verdict:
        """Wait for every record; the offsets follow once all of them are there."""
        deadline = time.monotonic() + self.limit
        for future, record in self._sent:
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
            except client.RECORD_REFUSED as error:
                self._refused = self._refused or replace(record, reason=_text(error))
            except client.AuthorizationError:
                raise
            except client.KafkaError as error:  # also those of whatever was sent behind a refused record
                self._error = self._error or _text(error)
        if self._refused or self._error:
            return self._refused or Unknown(self._error)
        if offsets:
            self.offsets.put(offsets)
        return Committed()

    def close(self) -> None:
        found, self._client = self._client, None
        if found is not None:
            with suppress(client.KafkaError):
                producer_internals.drop_producer(found)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
