"""Promises in Avro: the message is the same as of JSON, and a letter of one is edited as JSON."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from config.admin.levers import Operator
from config.formats import opener_for
from config.formats.registry import registry
from outbox.intake.promise_letters import PromiseLetters
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.config.formats.conftest import framed as framed
from tests.config.formats.conftest import schemas as schemas
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope, record, stored, write

pytestmark = pytest.mark.django_db
NAMES = ("channel", "event_type", "aggregate", "idempotency_key")
SCHEMA = {
    "type": "record", "name": "Promise", "fields": [
        *({"name": name, "type": "string"} for name in NAMES),
        {"name": "payload", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip


@pytest.fixture
def avro(schemas, framed, settings):
    settings.TOPIC_FORMATS = {TOPIC: {"FORMAT": "avro"}}
    schemas.by_id[1] = {"schema": json.dumps(SCHEMA)}
    opener_for.cache_clear()

    def written(**more: object) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), envelope(**more))
        return framed(stream.getvalue())

    yield written
    opener_for.cache_clear()


def test_a_promise_in_avro_is_the_same_message_as_in_json(avro, settings):
    write(record(avro()))
    settings.TOPIC_FORMATS = {}
    opener_for.cache_clear()
    taken = write(record(envelope()))
    assert len(stored()) == 1
    assert list(taken.repeats.values()) == [stored()[0].pk]


def test_a_letter_keeps_the_bytes_and_its_edited_copy_becomes_the_message(avro, framed):
    unknown, wrong = framed(b"x", 99), avro(key="I-2", payload={"to": "ada"})
    write(record(unknown), record(wrong))
    letters = {letter.reason: letter for letter in DeadLetter.objects.all()}
    assert bytes(letters["unknown_schema"].payload) == unknown
    letter = letters["payload_refused"]
    assert (bytes(letter.payload), letter.opened[1]) == (wrong, "Avro, schema 1")
    mended = json.dumps({**json.loads(text_of(letter)), "payload": MAIL})
    assert requeue_copy(letter.pk, mended, 0, Operator("me"), "the address").state == "waiting"
    assert len(stored()) == 1


def test_while_the_registry_is_away_its_letters_stay_and_nothing_breaks(avro, framed, schemas):
    write(record(framed(b"x", 99)))
    registry.cache_clear()
    schemas.fails = 503
    letter, kind = DeadLetter.objects.get(), PromiseLetters("messages-in")
    assert pull("requeue", [letter.pk], Operator("me"), "try").acted == 0
    assert (kind.backpressure([letter], letter.created_at), kind.form(letter)) == ("", None)
    assert kind.keys(letter) == set()
