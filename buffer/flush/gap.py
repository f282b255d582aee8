"""A database restored from a backup: nothing is cut before the ingester has read again what was forgotten."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import connection

from buffer.streams import GROUP, Stream
from config.kafka import topic_name
from config.kafka.client import KafkaError
from config.telemetry.logs import log
from outbox.bookkeeping.watermarks import Watermarks

INTERVAL = 1.0


class Gap:
    """Whether this database remembers less than the group has committed.

    Orders that wait in an old backup may have been sent since with other contents; cut again, they would be sent
    twice. The broker is asked only after a new connection, which may lead to another database, and while a gap is open.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = streams
        self.closed = False
        self.next_look = 0.0

    def is_open(self) -> bool:
        if connection.connection is None:
            self.closed = False
        if not self.closed and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + INTERVAL
            self.closed = not self._behind()
        return not self.closed

    def _behind(self) -> bool:
        try:
            topics = {stream.name: topic_name(stream.topic) for stream in self.streams}
            behind = [name for name, topic in topics.items() if Watermarks().behind(topic_name(GROUP), topic)]
        except KafkaError as error:
            log.warning("broker_unavailable", worker="flush_buffer", error=str(error))
            return True
        if behind:
            log.warning("waits_for_ingestion", streams=behind)
        return bool(behind)
