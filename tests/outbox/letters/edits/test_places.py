"""Where values stand in a text, what is wrong in it, and what turns one text into another."""

from __future__ import annotations

import cProfile
import time
from random import Random

import msgspec
import pytest

from buffer.ledger.topics import LOCKED, Payment, Receipt
from buffer.streams import TransferRequest
from config.gate import Gate, InvalidRecord
from outbox.letters.edit_checks import (
    count_changes,
    difference,
    line_of,
    located,
    locked_faults,
    locked_values,
    places,
    repeated_names,
)

TEXT = """{
  "purchaseOrderId": "PO-1",
  "items": [
    {"stockId": "A", "quantity": 24},
    {"stockId": "B", "quantity": "twelve"}
  ]
}"""


def said(kind: type, text: str) -> str:
    with pytest.raises(InvalidRecord) as refused:
        Gate.of(kind, 1000).decode(text.encode())
    return str(refused.value)


def test_a_value_has_a_path_a_line_and_its_text():
    found = places(TEXT)
    assert found["purchaseOrderId"] == (2, '"PO-1"')
    assert found["items[1].quantity"] == (5, '"twelve"')
    assert found["items"].line == 3
    assert line_of(found, "items[1].unit") == 5
    assert line_of(found, "nothing.like.it") == 1


@pytest.mark.parametrize("text", ["", "{", '{"a": ', '{"a": "x', "]]]", '{"a" "b"}', "[[[[", '"\\', "{{{,,,:::"])
def test_a_broken_text_has_places_too(text):
    assert isinstance(places(text), dict)
    assert places('{"purchaseOrderId": "PO-1", "items": [{"sto')["purchaseOrderId"].text == '"PO-1"'


def test_of_a_name_that_stands_twice_the_last_counts_as_in_the_gate():
    text = '{"saleOrderId": "A", "sale\\u004frderId": "B", "merchantId": 1, "items": [{"stockId": "X", "quantity": 1}]}'
    assert Gate.of(Payment, 1000).decode(text.encode()).sale_order_id == "B"
    assert places(text)["saleOrderId"].text == '"B"'


def test_a_name_with_a_dot_is_no_path():
    found = places('{"after": {"id": 1}, "after.id": 2}')
    assert found["after.id"].text == "1"


def test_the_error_of_the_gate_gets_path_and_line():
    fault = located(said(Receipt, TEXT), TEXT)
    assert (fault.path, fault.line, fault.where) == ("items[1].quantity", 5, "Line 5, items[1].quantity")
    assert fault.text == "must be a whole number, not a text. You wrote “twelve”."


@pytest.mark.parametrize(
    ("written", "said_of_it"),
    [
        ('"quantity": 0', "must be a whole number, 1 or more. You wrote “0”."),
        ('"quantity": null', "must be a whole number, not null."),
        ('"quantity": []', "must be a whole number, not a list."),
        ('"stockId": ""', "must not be empty."),
        ('"stockId": 7', "must be a text, not a whole number. You wrote “7”."),
    ],
)
def test_types_and_bounds_are_said_in_words(written, said_of_it):
    text = TEXT.replace('"twelve"', f"12, {written}")
    assert located(said(Receipt, text), text).text == said_of_it


def test_a_missing_field_is_named_where_it_should_stand():
    text = TEXT.replace(', "quantity": "twelve"', "")
    fault = located(said(Receipt, text), text)
    assert (fault.path, fault.line) == ("items[1].quantity", 5)
    missing = located(said(Receipt, "{}"), "{}")
    assert (missing.path, missing.line, missing.text) == ("purchaseOrderId", 1, "is missing.")


def test_what_is_no_json_has_a_line():
    text = TEXT.replace("24}", "24]")
    cut = TEXT.replace('"twelve"', "12")[:-1]
    assert located(said(Receipt, text), text).line == 4
    assert located(said(Receipt, cut), cut).line == 6


def test_what_names_the_effect_is_locked_and_the_rest_is_free():
    wanted = locked_values(TEXT, LOCKED)
    assert wanted == {"purchaseOrderId": "PO-1", "receiptId": None}
    assert locked_faults(TEXT.replace("twelve", "12"), wanted) == []
    (other,) = locked_faults(TEXT.replace("PO-1", "PO-2"), wanted)
    assert (other.path, other.line) == ("purchaseOrderId", 2)
    assert "must stay “PO-1”" in other.text
    (added,) = locked_faults(TEXT.replace('"items"', '"receiptId": "R",\n"items"'), wanted)
    assert added.path == "receiptId"
    assert locked_faults("{", wanted)[0].path == "purchaseOrderId"


def test_what_was_missing_or_wrong_may_be_written():
    assert locked_values('{"items": []}', LOCKED) == {}
    assert locked_values('{"saleOrderId": ""}', LOCKED) == {}
    text = '{"order_id": "A", "location_id": "W", "ordered_at": "yesterday", "items": [{"sku": "S", "quantity": 1}]}'
    wrong = {located(said(TransferRequest, text), text).path}
    assert wrong == {"ordered_at"}
    assert set(locked_values(text, ("order_id", "location_id", "ordered_at"), wrong)) == {"order_id", "location_id"}


def test_a_number_may_become_the_text_that_it_should_have_been():
    wanted = locked_values('{"order_id": 7}', ("order_id",))
    assert locked_faults('{"order_id": "7"}', wanted) == []
    assert locked_faults('{"order_id": "8"}', wanted)


def test_a_difference_names_lines_and_letters():
    lines = difference(TEXT, TEXT.replace('"twelve"', "12"))
    changed = [line for line in lines if line.sign]
    assert [(line.number, line.sign) for line in changed] == [(5, "-"), (5, "+")]
    assert "".join(piece.text for piece in changed[0].pieces).endswith('"twelve"}')
    assert [piece.text for piece in changed[1].pieces if piece.changed] == ["12"]
    assert count_changes(lines) == 1
    assert difference(TEXT, TEXT) == []


def test_two_changes_in_one_line_are_marked_apart():
    """As in a payload that is one line."""
    old = '{"order_id": "A1", "note": "' + "n" * 300 + '", "quantity": 4}'
    lines = difference(old, old.replace("A1", "A2").replace("4}", "7}"))
    assert [[piece.text for piece in line.pieces if piece.changed] for line in lines] == [["1", "4"], ["2", "7"]]


def test_a_long_text_shows_what_is_near_a_change():
    old = "\n".join(f"line {n}" for n in range(2000))
    lines = difference(old, old.replace("line 1000\n", "line 1000\nnew\n"))
    assert sum(line.gap for line in lines) == 2
    assert len(lines) < 12
    assert [line.number for line in lines if line.sign] == [1002]


def shuffled(seed: int) -> str:
    """As many lines as fit, each so often that difflib does not take it for a common one."""
    lines = [str(number % 130) for number in range(20_000)]
    Random(seed).shuffle(lines)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n".join(map(str, range(20_000))), "\n".join(map(str, range(20_000, 0, -1)))),
        (shuffled(1), shuffled(2)),
        ("\n".join(["a" * 499] * 2000), "\n".join(["b" + "a" * 498 + "c"] * 2000)),
        ("a" * 500_000 + "x" + "a" * 500_000, "a" * 500_000 + "y" + "a" * 500_000),
        ("ab" * 20_000, "ba" * 20_000),
    ],
    ids=["turned round", "shuffled", "lines of one letter", "one long line", "moved by one"],
)
def test_no_text_is_compared_for_long(old, new):
    """Counted in calls, which a busy machine does not make more: all lines with all would be two hundred million."""
    profile = cProfile.Profile()
    lines = profile.runcall(difference, old, new)
    assert sum(entry.callcount for entry in profile.getstats()) < 1_000_000
    assert any(line.sign for line in lines)


def test_what_is_nested_too_deep_costs_no_time():
    started = time.perf_counter()
    places("[" * 60_000)
    places('{"a":' * 10_000)
    assert time.perf_counter() - started < 1


def test_places_agree_with_a_decoder():
    value = {"a": [1, {"b": "x,y"}, [2, 3]], "c": {"d": None, "e": True}, "f": "{[:"}
    found = places(msgspec.json.encode(value).decode())
    assert {path: place.text for path, place in found.items() if place.text} == {
        "a[0]": "1", "a[1].b": '"x,y"', "a[2][0]": "2", "a[2][1]": "3", "c.d": "null", "c.e": "true", "f": '"{[:"',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1,\n "b": 2}', []),
        ('{"a": 1,\n "a": 2}', [("a", 2)]),
        ('{"a": 1,\n "\\u0061": 2}', [("a", 2)]),
        ('{"x": [{"b": 1},\n {"b": 1, "c": {"d": 1, "d": 1}}],\n "e": "d"}', [("d", 2)]),
        ('[{"a": 1}, {"a": 1}]', []),
        ('{"a": 1, "a"', []),
        ("[" * 100_000, []),
    ],
)
def test_a_name_that_stands_twice_in_one_object_is_named_with_its_line(text, found):
    assert repeated_names(text) == found
