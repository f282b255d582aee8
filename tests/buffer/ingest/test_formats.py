"""Topics in Avro and Protobuf: what is stored is their JSON, what is buried their bytes, and a registry is waited for."""

from __future__ import annotations

import io
import json
import threading
from contextlib import closing
from datetime import UTC, datetime

import fastavro
import msgspec
import pytest
from django.urls import reverse

from buffer.events.models import BufferedEvent
from buffer.flush.batch_letters import CUT
from buffer.flush.flusher import Flusher
from buffer.ingest.handler import Ingest
from buffer.ledger.topics import Movements, sources
from buffer.streams import Identifier, Quantity, TransferRequests
from config.admin.levers import Operator
from config.database.clock import database_now
from config.formats.registry import registry
from config.kafka import client
from config.kafka.consumer import consumer_of
from config.payload import digest
from config.telemetry.activity import activity
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters import redelivery
from outbox.letters.edits import examine, text_of
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter, ProofRound
from outbox.letters.redelivery import record_of
from tests.buffer.flush.test_flusher import age, hear, urge
from tests.buffer.ledger.conftest import quantities, record, write
from tests.config.admin.conftest import boss as boss
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.config.formats.conftest import framed as framed
from tests.config.formats.conftest import schemas as schemas
from tests.config.formats.messages import PointsEarned
from tests.crash.wire import wait_for
from tests.logged import lines

ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "long"}],
}
SCHEMA = {
    "type": "record", "name": "Request", "fields": [
        {"name": "order_id", "type": "string"}, {"name": "location_id", "type": "string"},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
    ],
}  # fmt: skip
PARSED = fastavro.parse_schema(SCHEMA)


class Points(msgspec.Struct):
    earning_id: Identifier
    points: Quantity


@pytest.fixture
def stream(schemas):
    schemas.by_id[1] = {"schema": json.dumps(SCHEMA)}
    names = {"TOPIC": "transfer-requests", "OUTPUT": "transfer-batches"}
    return TransferRequests("transfer-requests", {**names, "FORMAT": "avro"})


@pytest.fixture
def avro(framed):
    def written(order_id, **items):
        listed = [{"sku": sku, "quantity": quantity} for sku, quantity in items.items()]
        stream = io.BytesIO()
        request = {"order_id": order_id, "location_id": "WH-1", "ordered_at": datetime.now(UTC), "items": listed}
        fastavro.schemaless_writer(stream, PARSED, request)
        return framed(stream.getvalue())

    return written


@pytest.mark.django_db
def test_json_is_stored_and_digested_and_leaves_in_the_batch(ingest, records, stream, avro, producer):
    first, second = avro("A1", S1=2), avro("A2", S1=3)
    ingest(records(first, second, start=0))
    ingest(records(first, second, start=0))
    events = list(BufferedEvent.objects.order_by("order_id"))
    assert [(event.order_id, event.revision) for event in events] == [("A1", 0), ("A2", 0)]
    assert events[0].payload_hash == digest(events[0].payload.encode())
    assert msgspec.json.decode(events[0].payload)["items"] == [{"sku": "S1", "quantity": 2}]
    assert not DeadLetter.objects.exists()
    age(minutes=5)
    hear(seconds=0)
    Flusher([stream], producer).tick()
    assert producer.values[0]["items"] == [{"sku": "S1", "quantity": 5}]


@pytest.mark.django_db
def test_the_same_record_under_another_id_of_its_schema_is_no_conflict(ingest, records, schemas, framed, stream, avro):
    """What is digested is the JSON: a registry that was restored gives other ids to the same schemas."""
    schemas.by_id[2] = schemas.by_id[1]
    body = avro("A1", S1=2)[5:]
    for number in (1, 2):
        ingest(records(framed(body, number), start=0))
    assert (BufferedEvent.objects.count(), DeadLetter.objects.count()) == (1, 0)


@pytest.mark.django_db
def test_a_refused_record_keeps_its_bytes_its_key_and_its_reason(ingest, records, stream, avro, framed):
    values = [avro("A3"), avro("A4", S1=1)[:-2], framed(b"x", 99), b'{"order_id": "A5"}', b"\x00", b""]
    ingest(records(*values, start=0))
    letters = DeadLetter.objects.order_by("offset")
    assert [(letter.reason, letter.business_key) for letter in letters] == [
        ("wrong_field", "A3"), ("undecodable", ""), ("unknown_schema", ""), ("not_framed", "A5"), ("not_framed", ""),
        ("empty", ""),
    ]  # fmt: skip
    assert [bytes(letter.payload or b"") for letter in letters] == values


@pytest.mark.django_db
def test_an_edited_copy_is_json_and_goes_to_the_gate_as_it_is(ingest, records, stream, avro):
    ingest(records(avro("A3"), start=0))
    body = json.loads(stream.gate.opened(avro("A3")))
    copy = DeadLetter.objects.get().copy_with(json.dumps({**body, "items": [{"sku": "S", "quantity": 1}]}).encode(), 1)
    assert stream.gate.decode(record_of(copy).value).items[0].sku == "S"


@pytest.fixture
def of_settings(stream, monkeypatch):
    """The stream is the one that STREAMS names."""
    for module in ("buffer.streams", "buffer.flow", "buffer.flush.freeze"):
        monkeypatch.setattr(f"{module}.streams", lambda: {stream.name: stream})


@pytest.mark.django_db
def test_a_late_record_sends_the_difference(ingest, records, stream, avro, producer, of_settings):
    ingest(records(avro("A1", S1=2), start=0))
    age(minutes=5)
    hear(seconds=0)
    Flusher([stream], producer).tick()
    ingest(records(avro("A1", S1=5), start=1))
    assert pull("requeue", [DeadLetter.objects.get().pk], Operator("test"), "x").acted == 1
    age(minutes=5)
    Flusher([stream], producer).tick()
    assert producer.values[-1]["items"] == [{"sku": "S1", "quantity": 3}]
    assert msgspec.json.decode(BufferedEvent.objects.get().payload)["items"] == [{"sku": "S1", "quantity": 5}]


@pytest.mark.django_db
def test_an_order_that_was_set_aside_comes_back(ingest, records, stream, avro, producer, of_settings, monkeypatch):
    ingest(records(avro("A1", S1=2), start=0))
    age(minutes=5)
    hear(seconds=0)
    with monkeypatch.context() as broken:
        broken.setattr(stream, "summarise", lambda payloads: 1 / 0)
        Flusher([stream], producer).tick()
    letter = DeadLetter.objects.get()
    assert letter.step == CUT
    assert pull("requeue", [letter.pk], Operator("test"), "x").acted == 1
    urge()
    Flusher([stream], producer).tick()
    assert producer.values[-1]["items"] == [{"sku": "S1", "quantity": 2}]


@pytest.mark.django_db
@pytest.mark.usefixtures("of_settings")
def test_the_page_of_a_letter_shows_it_as_json_and_edits_that(ingest, records, avro, framed, settings, boss):
    settings.SECURE_SSL_REDIRECT = False
    ingest(records(avro("A3"), framed(b"x", 99), start=0))
    opened, unknown = DeadLetter.objects.order_by("offset")
    assert (opened.opened[1], unknown.opened) == ("Avro, schema 1", (b"", ""))
    page = boss.get(reverse("admin:outbox_deadletter_change", args=[opened.pk])).content.decode()
    assert "of Avro, schema 1, shown as JSON" in page
    assert "A3" in page
    assert boss.get(reverse("admin:outbox_deadletter_change", args=[unknown.pk])).status_code == 200
    assert json.loads(text_of(opened))["items"] == []
    mended = json.dumps({**json.loads(text_of(opened)), "items": [{"sku": "S1", "quantity": 4}]})
    examined = examine(opened, mended, database_now())
    assert not examined.faults
    assert bytes(DeadLetter.objects.get(pk=opened.pk).payload)[:5] == framed(b"")


@pytest.mark.django_db
@pytest.mark.usefixtures("of_settings")
def test_while_the_registry_is_away_pages_stay_up_and_letters_of_other_flows_go_on(
    ingest, records, avro, schemas, framed, settings, boss
):
    settings.SECURE_SSL_REDIRECT = False
    ingest(records(framed(b"x", 99), b'{"order_id": "A5"}', start=0))
    registry.cache_clear()  # as a web process that has seen no schema yet
    schemas.fails = 503
    unknown, other = DeadLetter.objects.order_by("offset")
    page = boss.get(reverse("admin:outbox_deadletter_change", args=[unknown.pk]))
    assert page.status_code == 200
    assert "SCHEMA_REGISTRY_URL" in page.content.decode()
    result = pull("requeue", [unknown.pk], Operator("test"), "x")
    assert (result.acted, DeadLetter.objects.get(pk=unknown.pk).status) == (0, "open")
    DeadLetter.objects.filter(pk__in=[unknown.pk, other.pk]).update(status="requeued")
    assert redelivery.look_after(database_now()) == 0
    assert ProofRound.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_while_the_registry_is_away_records_wait_and_none_is_buried(stream, schemas, avro, broker, make_topic, caplog):
    stream.topic = "formats"
    topic, stop = make_topic("formats", 1), threading.Event()
    schemas.fails = 503
    with closing(client.new_producer()) as producer:
        for number in range(5):
            producer.send(topic, value=avro(f"A{number}", S1=1), partition=0)
    reader = threading.Thread(target=consumer_of(Ingest(stream), Watermarks(), stop).run)
    reader.start()
    try:
        wait_for(lambda: "schema_registry_unavailable" in {line["event"] for line in lines(caplog)}, 60, "the wait")
        wait_for(lambda: activity.awaited().startswith("SCHEMA_REGISTRY_URL"), 60, "what the worker reports")
        assert not BufferedEvent.objects.exists()
        schemas.fails = None
        wait_for(lambda: BufferedEvent.objects.count() == 5, 60, "the records")
        wait_for(lambda: not activity.awaited(), 60, "the next report")
    finally:
        stop.set()
        reader.join(60)
    said = {line["event"]: line for line in lines(caplog)}
    assert "SCHEMA_REGISTRY_URL: the registry answers 503" in said["schema_registry_unavailable"]["error"]
    assert "prepare_failed" not in said
    assert not DeadLetter.objects.exists()


def points_of(message: Points) -> Movements:
    return Movements("POINTS", message.earning_id, {"C1": message.points})


@pytest.mark.django_db
def test_a_stock_topic_in_protobuf_moves_stock_once_by_the_digest_of_its_json(schemas, framed, settings):
    schemas.by_id[1] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    options = {"message": "tests.config.formats.messages.PointsEarned"}
    entry = {"EFFECT": f"{__name__}.points_of", "REFERENCES": ["earning_id"], "FORMAT": "protobuf"}
    settings.MOVEMENTS = {"points-earned": {**entry, "FORMAT_OPTIONS": options}}
    settings.LEDGER_UNKNOWN_STOCK = "create"
    sources.cache_clear()
    try:
        value = framed(b"\x00" + PointsEarned(earning_id="E1", points=7).SerializeToString())
        write(record(("points-earned", value), 0), record(("points-earned", framed(b"\x00\xff")), 1))
        write(record(("points-earned", value), 0))
        schemas.by_id[2] = schemas.by_id[1]
        write(record(("points-earned", framed(value[5:], 2)), 0))
        write(
            record(("points-earned", framed(b"\x00" + PointsEarned(earning_id="E2", points=-7).SerializeToString())), 2)
        )
        assert quantities() == {"C1": 7}
        letters = DeadLetter.objects.order_by("offset").values_list("reason", "business_key")
        assert list(letters) == [("undecodable", ""), ("wrong_field", "E2")]
        negative = DeadLetter.objects.get(business_key="E2")
        assert json.loads(negative.json_payload)["points"] == -7
        assert negative.opened[1] == "Protobuf, schema 1"
    finally:
        sources.cache_clear()
