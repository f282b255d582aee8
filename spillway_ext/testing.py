"""A pytest plugin for the tests of an extension: push records, let time pass, see batches, dead letters and mails.

`pytest_plugins = ["spillway_ext.testing"]` in conftest.py, pytest-django, and `DJANGO_SETTINGS_MODULE=config.settings`.
Everything is Spillway's own but the broker: with `spillway` records go straight to the handler that reads their topic,
in the transaction that it would have, and what is published is kept in a list; with `spillway_on_kafka`, slower by
seconds, both go through the embedded broker (extra `demo`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import transaction

from buffer.events.models import Bucket
from buffer.flush.flusher import Flusher
from buffer.streams import streams
from config.database.clock import database_now
from config.demo.embedded_kafka import API_VERSION, EmbeddedKafka, project_topics
from config.flows import flows
from config.kafka import Outgoing, Producer, RecordBatch, Replayed, Sent, topic_name
from config.kafka.consumer import consumer_of
from config.kafka.reader import Reader
from notifications.channels.local import Memory
from notifications.mail.content import Mail
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.burial import AlarmedWatermarks
from outbox.letters.models import DeadLetter
from outbox.workers.start import relay_round

Value = Mapping[str, Any] | bytes | None  # of a record: a mapping is sent as JSON

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
    """Spillway in one process, with the database of the test and a broker that is a list."""

    def __init__(self) -> None:
        self.sink: Any = Sink()
        self._ends: Counter[str] = Counter()

    def push(self, topic: str, *records: Value, key: str = "") -> None:
        """Read these records of a topic, one after the other, as its consumer does.

        LookupError when no flow reads the topic.
        """
        handler, name = _reader_of(topic), topic_name(topic)
        batch = RecordBatch([self._record(name, record, key) for record in records], {name: TOPIC_ID})
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            now = database_now()
            handler.write(batch, now)
            Watermarks().advance(topic_name(handler.group), batch.marks, now)

    def _record(self, topic: str, record: Value, key: str) -> Replayed:
        offset = self._ends[topic]
        self._ends[topic] += 1
        return Replayed(topic, 0, offset, 1_700_000_000_000 + offset, key.encode(), _encoded(record))

    def wait(self, **span: float) -> None:
        """Let time pass (`minutes=5`) for what is buffered, its consumers having read everything; then flush what is due."""
        age(**span)
        Watermark.objects.update(caught_up_at=database_now())
        Flusher(list(streams().values()), self.sink).tick()

    def published(self, topic: str) -> list[dict[str, Any]]:
        """What was published to a topic so far, oldest first."""
        return [msgspec.json.decode(message.value) for message in self.sink.sent if message.topic == topic_name(topic)]

    def letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first: `source`, `reason`, `error`, `business_key`, `payload`."""
        return list(DeadLetter.objects.order_by("pk"))

    def mails(self) -> list[Mail]:
        """Send what is due in every channel; the mails so far, oldest first: `to`, `subject`, `text`."""
        relay_round(5)
        return [mail for _key, mail in Memory.sent]


class PlatformOnKafka(Platform):
    """The same, with the topics of the settings on the embedded broker."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = Producer()

    def push(self, topic: str, *records: Value, key: str = "") -> None:
        handler = _reader_of(topic)
        self.sink.send_all([Outgoing(topic_name(topic), key, _encoded(record)) for record in records])  # type: ignore[arg-type]
        consumer_of(handler, AlarmedWatermarks(handler.source), threading.Event()).run(once=True)

    def published(self, topic: str) -> list[dict[str, Any]]:
        with Reader(topic_name(topic)) as reader:
            return [msgspec.json.decode(record.value or b"null") for part in reader.batches() for record in part]


def _reader_of(topic: str) -> Any:
    makers = {name: make for flow in flows() for name, make in flow.replays().items()}
    if topic not in makers:
        raise LookupError(f"no flow reads {topic!r}; these are read: {', '.join(sorted(makers))}")
    return makers[topic]()


def _encoded(record: Value) -> bytes | None:
    return msgspec.json.encode(record) if isinstance(record, Mapping) else record


@pytest.fixture
def mails_in_memory(settings: Any) -> Iterator[None]:
    """No mail leaves."""
    settings.EMAIL_CHANNEL = "memory"
    Memory.clear()
    yield
    Memory.clear()


@pytest.fixture
def spillway(db: None, mails_in_memory: None) -> Platform:
    """`spillway.push("parcel-scans", {…})`, `spillway.wait(minutes=5)`, `spillway.published("depot-digests")`."""
    return Platform()


@pytest.fixture
def spillway_on_kafka(transactional_db: None, mails_in_memory: None, settings: Any) -> Iterator[Platform]:
    """The same with the embedded broker. EmbeddedKafkaError when confluent-kafka is not installed."""
    with EmbeddedKafka() as broker:
        settings.KAFKA_BOOTSTRAP_SERVERS = [broker.bootstrap_servers]
        settings.KAFKA_API_VERSION = tuple(map(int, API_VERSION.split(".")))
        settings.KAFKA_TRANSACTIONS, settings.KAFKA_SESSION_TIMEOUT_MS = False, 2000
        for name, partitions in project_topics().items():
            broker.create_topic(name, partitions)
        platform = PlatformOnKafka()
        yield platform
        platform.sink.close()
