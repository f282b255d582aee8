"""What is typed into the fields of a mail, and what a gate has against a copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from config.admin.humanize import indented
from config.database.clock import database_now
from config.letters import Letters
from notifications.mail.content import form_of, html_of
from outbox.letters import edits
from outbox.letters.edits import examine, field_of, mark_of, typed, with_fields
from outbox.letters.models import DeadLetter

OWN = "<p>our own</p>"
MAIL = {"to": "ada@exampel.com", "subject": "Your parcel", "text": "Dear Ada", "html": OWN, "order_id": "7"}
NEW, MADE = "Dear Ada,\n\nsorry.", html_of("Dear Ada,\n\nsorry.")
TO, SUBJECT, TEXT = "$.to", "$.subject", "$.text"
# (what the letter says, what was changed in the JSON, what was typed into fields, is HTML made, what comes of it, faults)
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str], bool, dict[str, Any], list[str]]] = {
    "nothing": (MAIL, {}, {}, True, {}, []),
    "JSON alone": (MAIL, {"to": "ada@example.com"}, {}, True, {"to": "ada@example.com"}, []),
    "a field alone": (MAIL, {}, {SUBJECT: "Sorry"}, True, {"subject": "Sorry"}, []),
    "both, the same": (MAIL, {"subject": "Sorry"}, {SUBJECT: "Sorry"}, True, {"subject": "Sorry"}, []),
    "both, one address": (MAIL, {"to": "ada@example.com"}, {TO: "ada@EXAMPLE.com"}, True, {"to": "ada@example.com"}, []),
    "both, two values": (MAIL, {"subject": "A"}, {SUBJECT: "B", TO: "b@example.com"}, True, {"subject": "A", "to": "b@example.com"}, ["subject"]),
    "an address": (MAIL, {}, {TO: "ada@EXAMPLE.com"}, True, {"to": "ada@example.com"}, []),
    "no address": (MAIL, {}, {TO: "nobody at all"}, True, {"to": "nobody at all"}, []),
    "an address as the subject": (MAIL, {}, {SUBJECT: "ada@EXAMPLE.com"}, True, {"subject": "ada@EXAMPLE.com"}, []),
    "a text": (MAIL, {}, {TEXT: NEW}, True, {"text": NEW, "html": MADE}, []),
    "a text in the JSON": (MAIL, {"text": NEW}, {}, True, {"text": NEW, "html": MADE}, []),
    "a text, HTML left": (MAIL, {}, {TEXT: NEW}, False, {"text": NEW}, []),
    "no text any more": (MAIL, {}, {TEXT: ""}, True, {"text": ""}, []),
    "HTML in the JSON, the text as it was": (MAIL, {"html": "<i>"}, {}, True, {"html": "<i>"}, []),
    "made by hand of the text as it was": (MAIL, {"html": html_of(MAIL["text"])}, {}, True, {"html": html_of(MAIL["text"])}, []),
    "made, and left after all": (MAIL, {"text": NEW, "html": MADE}, {}, False, {"text": NEW}, []),
    "by hand, and left": (MAIL, {"text": NEW, "html": "<i>"}, {}, False, {"text": NEW, "html": "<i>"}, []),
    "made where none was, and left": ({**MAIL, "html": None}, {"text": NEW, "html": MADE}, {}, False, {"text": NEW, "html": MADE}, []),
    "a number is no text": ({**MAIL, "text": 7}, {}, {SUBJECT: "Sorry"}, True, {"subject": "Sorry"}, []),
    "a text instead of a number": ({**MAIL, "text": 7}, {}, {TEXT: NEW}, True, {"text": NEW, "html": MADE}, []),
}  # fmt: skip


@pytest.mark.parametrize(("mail", "in_json", "in_fields", "make", "changes", "faults"), FIELDS.values(), ids=FIELDS)
def test_what_is_typed_into_fields_stands_in_the_json(mail, in_json, in_fields, make, changes, faults):
    own = {name: value for name, value in mail.items() if value is not None}
    form, before = form_of(own), json.dumps(own)
    shown = {field.path: field_of(before, field.path) for field in form.fields}
    marks = {path: mark_of(text) for path, text in shown.items()}
    letter = DeadLetter(payload=before.encode())
    text = indented(json.dumps({**own, **in_json}))
    result, wrong = with_fields(text, letter, form, {**shown, **in_fields}, marks, make)
    assert json.loads(result) == {**own, **changes}
    assert [fault.path for fault in wrong] == faults
    if not in_fields and changes == in_json:
        assert result == text
    assert with_fields(text, letter, form, {}, {}, make)[1] == [], "a page without fields"


def test_what_is_no_json_stays_as_it_was_typed():
    letter, form = DeadLetter(payload=json.dumps({**MAIL, "subject": 7}).encode()), form_of(MAIL)
    for make in (True, False):
        assert with_fields("{", letter, form, {SUBJECT: "Sorry"}, {SUBJECT: mark_of("")}, make) == ("{", [])
    assert typed("a\r\nb\x00") == "a\nb"
    assert [field_of(text, TEXT) for text in ('{"text": 7}', '{"text": null}', "{}", "{")] == [""] * 4
    assert field_of('{"text": "a\\r\\nb"}', TEXT) == "a\nb"


# -- what a gate has against a copy --------------------------------------------------------------------------
class OrderLine(msgspec.Struct):
    sku: str
    quantity: Annotated[int, Meta(ge=1)]


class Gate(Letters[DeadLetter]):
    """Says the first thing, as a decoder does, or all that a function says."""

    locked = ("to",)

    def __init__(self, says_all: Callable[[Any], list[str]] | None = None) -> None:
        super().__init__("any")
        self.says_all = says_all

    def faults(self, letter):
        if self.says_all:
            return self.says_all(json.loads(letter.payload))
        try:
            msgspec.json.decode(letter.payload, type=OrderLine)
        except msgspec.MsgspecError as error:
            return [str(error)]
        return []


def without_names(payload):
    return [f"no - at `$.{name}`" for name in ("to", "sku") if not payload[name]]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("gate", "text", "found"),
    [
        (Gate(), '{\n"to": "ada",\n"sku": 7,\n"quantity": 0}', [(3, "sku")]),
        (Gate(), '{\n"to": "ada",\n"sku": "B",\n"quantity": 0}', [(4, "quantity")]),
        (Gate(without_names), '{\n"to": "ada",\n"sku": "",\n"quantity": 0}', [(3, "sku")]),
        (Gate(without_names), '{\n"to": "",\n"sku": "",\n"quantity": 0}', [(2, "to"), (2, "to"), (3, "sku")]),
    ],
    ids=["the first", "the next once that is mended", "all there is", "all of several, beside the lock"],
)
def test_a_copy_has_the_faults_that_its_gate_says(monkeypatch, gate, text, found):
    monkeypatch.setattr(edits, "letters_of", lambda *_: gate)
    letter = DeadLetter(source="any", payload=b'{"to": "ada", "sku": "A", "quantity": 1}')
    assert [(fault.line, fault.path) for fault in examine(letter, text, database_now()).faults] == found


@pytest.mark.django_db
def test_faults_stand_in_the_order_of_the_text_and_a_copy_without_a_change_is_refused(monkeypatch):
    monkeypatch.setattr(edits, "letters_of", lambda *_: Gate())
    text = '{\n"to": "ada",\n"to": "eve",\n"sku": 7,\n"quantity": 0}'
    letter = DeadLetter(source="any", payload=b'{"to": "ada", "sku": "A", "quantity": 1}')
    said = [(fault.line, fault.path) for fault in examine(letter, text, database_now()).faults]
    assert said == [(3, "to"), (3, ""), (4, "sku")]
    (same,) = examine(letter, edits.text_of(letter), database_now()).faults
    assert same.text == edits.SAME
