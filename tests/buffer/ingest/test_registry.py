"""Records of Confluent's own serializers through a real registry: digests, letters, and the registry away."""

from __future__ import annotations

import json
import os
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

import pytest
from django.db import connections

from buffer.events.models import BufferedEvent
from buffer.flush.flusher import Flusher
from buffer.ingest.handler import Ingest
from buffer.streams import TransferRequests
from config.admin.levers import Operator
from config.formats.protobuf import protobuf
from config.formats.registry import jsonschema, registry
from config.kafka import client
from config.kafka.consumer import consumer_of
from config.telemetry.activity import activity
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.models import DeadLetter
from tests.buffer.flush.test_flusher import age, hear
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.config.formats.messages import PointsEarned
from tests.crash.wire import wait_for

schema_registry = pytest.importorskip("confluent_kafka.schema_registry")

TOPIC = "transfer-requests"
NAMES = {"TOPIC": TOPIC, "OUTPUT": "transfer-batches"}
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "long"}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "order_id", "type": "string"}, {"name": "location_id", "type": "string"},
    {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "items", "type": {"type": "array", "items": LINE}},
]  # fmt: skip
LANE = {"name": "lane", "type": ["null", "string"], "default": None}
AT = datetime.now(UTC).replace(microsecond=0)


class Door:
    """The registry at an address of the test's own, where it can be away."""

    def __init__(self, upstream: str) -> None:
        self.upstream, self.port = upstream, 0
        self.server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        upstream = self.upstream

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    with urllib.request.urlopen(upstream + self.path) as answer:  # noqa: S310 (of TEST_REGISTRY_URL)
                        status, content = answer.status, answer.read()
                except HTTPError as refusal:
                    status, content = refusal.code, refusal.read()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shut(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture(params=["registry"])
def door(settings: Any) -> Iterator[Door]:
    if not (url := os.environ.get("TEST_REGISTRY_URL")):
        pytest.skip("TEST_REGISTRY_URL names no schema registry")
    door = Door(url)
    door.open()
    settings.SCHEMA_REGISTRY_URL = door.url
    registry.cache_clear()
    yield door
    registry.cache_clear()
    door.shut()


@pytest.fixture
def subject() -> Callable[[object, str], str]:
    """Each test has subjects of its own."""
    name = f"test-{uuid.uuid4().hex}"
    return lambda _context, _record: name


@pytest.fixture
def confluent(door: Door) -> Iterator[Any]:
    with closing(schema_registry.SchemaRegistryClient({"url": door.upstream})) as confluent:
        yield confluent


def written(serializer: Any, value: object) -> bytes:
    from confluent_kafka.serialization import MessageField, SerializationContext

    content: bytes = serializer(value, SerializationContext(TOPIC, MessageField.VALUE))
    return content


@pytest.fixture
def avro(confluent: Any, subject: Any) -> Callable[..., Callable[..., bytes]]:
    """A producer's `write(order_id, quantity)` by a schema with these fields more."""
    from confluent_kafka.schema_registry.avro import AvroSerializer

    def producer_of(*more: dict[str, Any]) -> Callable[..., bytes]:
        schema = {"type": "record", "name": "Request", "fields": [*FIELDS, *more]}
        serializer = AvroSerializer(confluent, json.dumps(schema), conf={"subject.name.strategy": subject})
        common = {"location_id": "WH-1", "ordered_at": AT, **{field["name"]: "1A" for field in more}}
        return lambda order_id, quantity: written(
            serializer, {"order_id": order_id, **common, "items": [{"sku": "S1", "quantity": quantity}]}
        )

    return producer_of


@pytest.fixture
def stream(monkeypatch: Any) -> TransferRequests:
    stream = TransferRequests(TOPIC, {**NAMES, "FORMAT": "avro"})
    for module in ("buffer.streams", "buffer.flow", "buffer.flush.freeze"):
        monkeypatch.setattr(f"{module}.streams", lambda: {stream.name: stream})
    return stream


def digest_of(stream: TransferRequests, producer: Any) -> dict[str, Any]:
    age(minutes=5)
    hear(seconds=0)
    Flusher([stream], producer).tick()
    batch: dict[str, Any] = producer.values[-1]
    return batch


@pytest.mark.django_db
def test_the_digest_of_avro_is_that_of_json_also_when_a_field_is_added_midway(ingest, records, stream, avro, producer):
    old, new = avro(), avro(LANE)
    ingest(records(old("A1", 2), new("A2", 3), old("A3", 4), start=0))
    batch = digest_of(stream, producer)
    assert (batch["location_id"], batch["order_ids"], batch["items"]) == (
        "WH-1", ["A1", "A2", "A3"], [{"sku": "S1", "quantity": 9}],
    )  # fmt: skip
    stored = {event.order_id: json.loads(event.payload) for event in BufferedEvent.objects.all()}
    common = {"location_id": "WH-1", "ordered_at": AT.isoformat().replace("+00:00", "Z")}
    assert stored == {
        "A1": {"order_id": "A1", **common, "items": [{"sku": "S1", "quantity": 2}]},
        "A2": {"order_id": "A2", **common, "items": [{"sku": "S1", "quantity": 3}], "lane": "1A"},
        "A3": {"order_id": "A3", **common, "items": [{"sku": "S1", "quantity": 4}]},
    }
    assert not DeadLetter.objects.exists()


@pytest.mark.django_db
def test_each_bad_record_is_its_letter_and_an_edited_one_is_requeued(
    ingest, records, stream, avro, producer, confluent
):
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    good = avro()("A1", 2)
    foreign = ProtobufSerializer(
        PointsEarned, confluent, {"subject.name.strategy": lambda *_: f"test-{uuid.uuid4().hex}"}
    )
    bad = {
        "truncated": (good[:-2], "undecodable", ""), "more behind": (good + b"xx", "undecodable", ""),
        "no schema": (b"\x00\x7f\xff\xff\xff" + good[5:], "unknown_schema", ""),
        "protobuf": (written(foreign, PointsEarned(earning_id="E1")), "wrong_format", ""),
        "json": (b'{"order_id": "A5"}', "not_framed", "A5"), "a lone NUL": (b"\x00", "not_framed", ""),
        "empty": (b"", "empty", ""), "none": (None, "empty", ""), "quantity": (avro()("A9", 0), "wrong_field", "A9"),
    }  # fmt: skip
    ingest(records(*(value for value, _reason, _key in bad.values()), start=0))
    letters = list(DeadLetter.objects.order_by("offset"))
    assert [(letter.reason, letter.business_key) for letter in letters] == [
        (reason, key) for _value, reason, key in bad.values()
    ]
    edited = {**json.loads(text_of(letters[-1])), "items": [{"sku": "S1", "quantity": 5}]}
    requeue_copy(letters[-1].pk, json.dumps(edited), 0, Operator("test"), "a quantity of zero")
    batch = digest_of(stream, producer)
    assert (batch["order_ids"], batch["items"]) == (["A9"], [{"sku": "S1", "quantity": 5}])


def test_protobuf_and_json_schema_of_confluents_serializers(door, confluent, subject):
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    earned = PointsEarned(earning_id="E1", points=2**60)
    serializer = ProtobufSerializer(PointsEarned, confluent, {"subject.name.strategy": subject})
    opened = json.loads(protobuf("tests.config.formats.messages.PointsEarned")(written(serializer, earned)))
    assert (opened["earning_id"], opened["points"], opened["kind"], opened["lines"]) == ("E1", 2**60, "UNKNOWN", [])
    schema = json.dumps({"title": "Earned", "type": "object", "properties": {"points": {"type": "integer"}}})
    named = {"subject.name.strategy": lambda *_: f"test-{uuid.uuid4().hex}"}
    assert json.loads(jsonschema()(written(JSONSerializer(schema, confluent, conf=named), {"points": 7}))) == {
        "points": 7
    }


@pytest.mark.django_db(transaction=True)
def test_with_the_registry_away_and_workers_restarted_meanwhile_nothing_is_lost_or_buried(
    stream, avro, door, broker, make_topic
):
    stream.topic = "formats"
    topic = make_topic("formats", 1)
    known, later = avro(), avro(LANE)
    values = [known("A0", 1), *(later(f"A{number}", 1) for number in range(1, 5))]
    with closing(client.new_producer()) as producer:
        for value in values[:1]:
            producer.send(topic, value=value, partition=0)
        producer.flush()
        with reading(stream):
            wait_for(lambda: BufferedEvent.objects.count() == 1, 60, "the first record")
            door.shut()
            for value in values[1:]:
                producer.send(topic, value=value, partition=0)
            producer.flush()
            wait_for(activity.awaited, 60, "that the worker waits")
    registry.cache_clear()  # as a process that is started anew
    stream.__dict__.pop("gate")
    with reading(stream):
        wait_for(activity.awaited, 60, "that the next one waits")
        assert BufferedEvent.objects.count() == 1
        door.open()
        wait_for(lambda: BufferedEvent.objects.count() == len(values), 60, "all of them")
    assert not DeadLetter.objects.exists()


class reading:
    """A worker of the stream while the block runs."""

    def __init__(self, stream: TransferRequests) -> None:
        self.stop = threading.Event()
        self.consumer = consumer_of(Ingest(stream), Watermarks(), self.stop)
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            self.consumer.run()
        finally:
            connections.close_all()

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
