"""Notifications in Avro: what waits and what leaves is JSON, letters keep the bytes, and a registry is waited for."""

from __future__ import annotations

import io
import json
import threading

import fastavro
import msgspec
import pytest

from config.admin.levers import Operator
from config.formats import opener_for
from config.telemetry.activity import activity
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from tests.config.formats.conftest import framed as framed
from tests.config.formats.conftest import schemas as schemas
from tests.crash.wire import wait_for
from tests.throttler.worker.conftest import ids_in, notification, records_of
from throttler.engine.output_transaction import INPUT, OUTPUT
from throttler.notification_letters import NotificationLetters

SCHEMA = {
    "type": "record", "name": "Notification", "fields": [
        *({"name": name, "type": "string"} for name in ("notification_id", "customer_id", "recipient", "created_at")),
        {"name": "message", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
HOME = {"acme": 1, "best": 0}  # where their notifications belong, of two partitions


@pytest.fixture
def avro(schemas, framed, settings):
    settings.TOPIC_FORMATS = {INPUT: {"FORMAT": "avro"}}
    schemas.by_id[1] = {"schema": json.dumps(SCHEMA)}
    opener_for.cache_clear()

    def written(customer: str) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), msgspec.json.decode(notification(customer)))
        return framed(stream.getvalue())

    yield written
    opener_for.cache_clear()


@pytest.mark.django_db(transaction=True)
def test_what_waits_is_forwarded_and_leaves_is_json(avro, send, run, customer):
    customer("acme", "50/s", 1)
    own = [avro("acme") for _ in range(5)]
    send(*own, notification("acme"), own[0][:-3], partition=HOME["acme"])
    send(avro("acme"), partition=HOME["best"])
    run()
    values = [msgspec.json.decode(record.value) for record in records_of(OUTPUT)]
    assert {value["throttled"] for value in values} == {True, False}
    assert len(ids_in(OUTPUT)["acme"]) == len(values) == 7
    letter = DeadLetter.objects.get()
    assert (letter.reason, bytes(letter.payload)) == ("undecodable", own[0][:-3])


@pytest.mark.django_db(transaction=True)
def test_while_the_registry_is_away_records_wait_and_what_waits_already_leaves(avro, schemas, send, run):
    schemas.fails = 503
    send(avro("acme"), partition=HOME["acme"])

    said: list[str] = []

    def comes_back() -> None:
        try:
            wait_for(lambda: said.append(activity.awaited()) or said[-1], 20, "that the throttler waits")
        finally:
            schemas.fails = None

    thread = threading.Thread(target=comes_back)
    thread.start()
    run()
    thread.join(60)
    assert said[-1].startswith("SCHEMA_REGISTRY_URL: the registry answers 503")
    assert len(ids_in(OUTPUT)["acme"]) == 1
    assert activity.awaited() == ""
    assert not DeadLetter.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_letter_is_shown_as_json_and_requeued_as_json(avro, send, run, settings):
    value = avro("acme")
    settings.THROTTLER_MAX_MESSAGE_BYTES = len(value) - 1
    send(value, partition=HOME["acme"])
    run()
    large = DeadLetter.objects.get()
    assert large.reason == "too_large"
    settings.THROTTLER_MAX_MESSAGE_BYTES = 65_536
    assert large.opened[1] == "Avro, schema 1"
    assert json.loads(large.json_payload)["customer_id"] == "acme"
    assert NotificationLetters("throttler").faults(large) == []
    assert pull("requeue", [large.pk], Operator("me"), "try").acted == 1
    sent = msgspec.json.decode(OutboxMessage.objects.get().payload)["value"]
    assert json.loads(sent) == json.loads(large.json_payload)
