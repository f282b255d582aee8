"""The schema that docs/messages-in.md gives to services says what the code does."""

from __future__ import annotations

import json
import re

import msgspec

from notifications.mail.content import Mail
from outbox.intake.envelope import LENGTHS, READABLE, read
from tests.outbox.intake.conftest import TOPIC, record
from tests.tree import ROOT

DOCUMENT = (ROOT / "docs" / "messages-in.md").read_text()
SCHEMA = json.loads((ROOT / "docs" / "messages-in.schema.json").read_text())


def test_the_schema_names_the_fields_and_their_lengths():
    fields = SCHEMA["properties"]
    assert set(fields) == {*READABLE, "payload"}
    assert set(SCHEMA["required"]) == {*LENGTHS, "payload"}
    most = {name: fields[name]["maxLength"] for name in LENGTHS}
    assert most == {**LENGTHS, "idempotency_key": LENGTHS["idempotency_key"] - 1}  # a name and a stroke before it


def test_the_schema_names_the_parts_of_a_mail():
    mail = SCHEMA["$defs"]["mail"]
    assert set(mail["properties"]) == {field.encode_name for field in msgspec.structs.fields(Mail)}
    needed = {"to": "ada@example.com", "subject": "S", "text": "T"}
    assert set(mail["required"]) == set(needed)


def test_the_example_of_the_document_is_a_promise():
    (example,) = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    promise = read(record(example.encode()), TOPIC)
    assert promise.aggregate == "invoice:4711"
    assert f"up to {LENGTHS['idempotency_key'] - len(TOPIC) - 1} characters in `{TOPIC}`" in DOCUMENT
