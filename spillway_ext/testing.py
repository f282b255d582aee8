"""A pytest plugin for the tests of an extension: push records, let time pass, see batches and dead letters.

`pytest_plugins = ["spillway_ext.testing"]` in conftest.py, pytest-django, and `DJANGO_SETTINGS_MODULE=config.settings`.
Everything is Spillway's own but the broker: records go straight to the handler that reads their topic, in the
transaction that it would have, and what is published is kept in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import transaction

from buffer.events.models import Bucket
from buffer.flush.flusher import Flusher
from buffer.streams import streams
from config.database.clock import database_now
from config.flows import flows
from config.kafka import Outgoing, RecordBatch, Replayed, Sent, topic_name
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.models import DeadLetter

TOPIC_ID = "00000000-0000-4000-8000-000000000001"
TIMES = ("first_arrival", "last_arrival", "idle_at", "cap_at", "due_at")  # of a bucket


def age(**span: float) -> None:
    """Let that much time have passed for every bucket."""
    back = timedelta(**span)
    for bucket in Bucket.objects.all():
        for name in TIMES:
            if at := getattr(bucket, name):
                setattr(bucket, name, at - back)
        bucket.save()


class Sink:
    """A producer whose broker is a list."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    def send_all(self, messages: Sequence[Outgoing]) -> list[Sent]:
        self.sent += messages
        return [Sent(0, len(self.sent)) for _ in messages]

    def topic_ids(self, topics: object) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""


class Platform:
    """Spillway in one process, with the database of the test."""

    def __init__(self) -> None:
        self.sink = Sink()
        self._ends: Counter[str] = Counter()

    def push(self, topic: str, *records: Mapping[str, Any] | bytes | None, key: str = "") -> None:
        """Read these records of a topic, one after the other, as its consumer does; a mapping is sent as JSON.

        LookupError when no flow reads the topic.
        """
        makers = {name: make for flow in flows() for name, make in flow.replays().items()}
        if topic not in makers:
            raise LookupError(f"no flow reads {topic!r}; these are read: {', '.join(sorted(makers))}")
        handler, name = makers[topic](), topic_name(topic)
        batch = RecordBatch([self._record(name, record, key) for record in records], {name: TOPIC_ID})
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            now = database_now()
            handler.write(batch, now)
            Watermarks().advance(topic_name(handler.group), batch.marks, now)

    def _record(self, topic: str, record: Mapping[str, Any] | bytes | None, key: str) -> Replayed:
        value = msgspec.json.encode(record) if isinstance(record, Mapping) else record
        offset = self._ends[topic]
        self._ends[topic] += 1
        return Replayed(topic, 0, offset, 1_700_000_000_000 + offset, key.encode(), value)

    def wait(self, **span: float) -> None:
        """Let time pass (`minutes=5`) for what is buffered, its consumers having read everything; then flush what is due."""
        age(**span)
        Watermark.objects.update(caught_up_at=database_now())
        Flusher(list(streams().values()), self.sink).tick()  # type: ignore[arg-type]

    def published(self, topic: str) -> list[dict[str, Any]]:
        """What was published to a topic so far, oldest first."""
        return [msgspec.json.decode(message.value) for message in self.sink.sent if message.topic == topic_name(topic)]

    def letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first: `source`, `reason`, `error`, `business_key`, `payload`."""
        return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def spillway(db: None) -> Platform:
    """`spillway.push("parcel-scans", {…})`, `spillway.wait(minutes=5)`, `spillway.published("depot-digests")`."""
    return Platform()
