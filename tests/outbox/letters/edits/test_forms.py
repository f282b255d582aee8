"""What is typed into the fields of a mail, and the search for all that a gate has against a copy: guard by guard."""

from __future__ import annotations

import json
from datetime import datetime
from types import FunctionType
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta

from config.admin.humanize import indented
from config.database.clock import database_now
from config.letters import Letters
from notifications.mail.content import form_of, html_of
from outbox.letters import edits
from outbox.letters.edits import MOST_FAULTS, examine, field_of, gate_faults, mark_of, typed, with_fields
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


# -- all that a gate has against a copy ----------------------------------------------------------------------
class OrderLine(msgspec.Struct):
    sku: str
    quantity: Annotated[int, Meta(ge=1)]


class Everything(msgspec.Struct):
    """A value of every kind that a gate may ask for; of all that is wrong the decoder says the first."""

    to: str
    token: str
    number: int
    lines: list[OrderLine]
    more: list[int]
    extra: dict[str, int]
    sure: bool
    at: datetime
    address: Annotated[str, Meta(pattern="^[^@ ]+@[^@ ]+$")]
    id: UUID
    last: int
    inner: OrderLine | None = None


WRONG = {
    "to": 7, "token": 7, "number": "x", "lines": [{"sku": 7, "quantity": 0}, {"sku": "A", "quantity": "x"}], "more": 7,
    "extra": 7, "sure": "no", "at": 7, "address": 7, "id": 7,
}  # fmt: skip
PATHS = [
    "to", "token", "number", "lines[0].sku", "lines[0].quantity", "lines[1].quantity", "more", "extra", "sure", "at",
    "address", "id", "last",
]  # fmt: skip


class OneByOne(Letters[DeadLetter]):
    """A gate that says the first thing, as a decoder does, or all that a function says."""

    locked = ("to",)

    def __init__(self, source: str, gate: Any) -> None:
        super().__init__(source)
        self.gate, self.asked = gate, 0

    def faults(self, letter):
        self.asked += 1
        if isinstance(self.gate, FunctionType):
            return self.gate(json.loads(letter.payload))
        try:
            msgspec.json.decode(letter.payload, type=self.gate)
        except msgspec.MsgspecError as error:
            return [str(error)]
        return []


def wrong_as_long(payload):
    """What mends `a` is wrong beside what mends `b`."""
    if payload["a"] == 7 or (payload["a"] == "x" and payload["b"] == 1):
        return ["no - at `$.a`"]
    return [] if payload["b"] == 1 else ["no - at `$.b`"]


def at_once(payload):
    return [f"no - at `$.a{number}`" for number in range(30) if payload[f"a{number}"] == 7]


MANY = {f"a{number}": 7 for number in range(30)}
# (gate, text, paths of what is wrong, how often the gate may be asked)
GATES: dict[str, tuple[Any, str, list[str], int]] = {
    "of every kind": (Everything, json.dumps(WRONG), PATHS, 80),
    "in lines": (list[OrderLine], '[{"sku": 7,\n"quantity": 0},\n{"sku": "A"}]', ["[0].sku", "[0].quantity", "[1].quantity"], 20),
    "nothing": (OrderLine, '{"sku": "A", "quantity": 1}', [], 1),
    "no value helps": (Everything, json.dumps({**WRONG, "to": "a", "token": "b", "number": 1, "lines": [], "inner": 7})[:-1] + ', "last": 1}', ["more", "extra", "sure", "at", "address", "id", "inner"], 80),
    "a broken text": (OrderLine, '{"sku": 7, "quantity": ', ["sku"], 1),
    "no object": (OrderLine, "[]", [""], 2),
    "a place that is not there": (lambda payload: ["no - at `$.no.where`"], "{}", ["no.where"], 20),
    "two at once, one nowhere": (lambda payload: ["no - at `$.no.where`", "no - at `$.a`"], '{"a": 7}', ["no.where", "a"], 30),
    "a way that is no path": (lambda payload: ["no - at `$.a[...]`"], '{"a": 7}', ["a[...]"], 3),
    "one mends, the other breaks": (wrong_as_long, '{"a": 7, "b": "s"}', ["a", "b"], 30),
    "too many items": (list[str], json.dumps([7] * 30), [f"[{number}]" for number in range(MOST_FAULTS)], 2 * MOST_FAULTS),
    "too many at once": (at_once, json.dumps(MANY), [f"a{number}" for number in range(MOST_FAULTS)], 2 + 30),
}  # fmt: skip


@pytest.mark.parametrize(("gate", "text", "paths", "most"), GATES.values(), ids=GATES)
def test_all_that_a_gate_has_against_a_copy_is_found_by_mending(monkeypatch, gate, text, paths, most):
    letters = OneByOne("any", gate)
    monkeypatch.setattr(edits, "letters_of", lambda source: letters)
    found = gate_faults(DeadLetter(source="any", payload=text.encode()), text)
    assert [fault.path for fault in found] == paths
    assert letters.asked <= most
    if "\n" in text:
        assert [fault.line for fault in found] == [1, 2, 3]
    assert all("You wrote “x”" not in fault.text or '"x"' in text for fault in found), (
        "of the text, not of what mends it"
    )


def test_what_is_within_a_value_is_not_mended_by_it():
    within = edits._is_within
    assert [within(path, "a") for path in ("a", "a.b", "a[0]", "ab", "b", "")] == [True] * 3 + [False] * 3


@pytest.mark.django_db
def test_faults_stand_in_the_order_of_the_text_and_a_copy_without_a_change_is_refused(monkeypatch):
    monkeypatch.setattr(edits, "letters_of", lambda source: OneByOne("any", OrderLine))
    text = '{\n"to": "ada",\n"to": "eve",\n"sku": 7,\n"quantity": 0}'
    letter = DeadLetter(source="any", payload=b'{"to": "ada", "sku": "A", "quantity": 1}')
    said = [(fault.line, fault.path) for fault in examine(letter, text, database_now()).faults]
    assert said == [(3, "to"), (3, ""), (4, "sku"), (5, "quantity")]
    (same,) = examine(letter, edits.text_of(letter), database_now()).faults
    assert same.text == edits.SAME
