"""Masks: what a flow names may be read, everything else is dots, and the shape stays."""

from __future__ import annotations

import json

import pytest

from config.telemetry.redaction import DOTS, masked, masked_error

READABLE = ("order_id", "items[].sku", "tags[]", "a.b")
SECRET = "zq-planted-7f3a"


def test_the_shape_stays_and_only_named_values_are_read():
    text = masked(
        json.dumps({"order_id": "A-1", "user_email": "ada@example.com", "items": [{"sku": "S1", "note": SECRET}, 5], "n": None}),
        READABLE, ("user_email", "items[].note"),
    )  # fmt: skip
    assert json.loads(text) == {
        "order_id": "A-1", "user_email": DOTS, "items": [{"sku": "S1", "note": DOTS}, DOTS], DOTS: DOTS,
    }  # fmt: skip


@pytest.mark.parametrize(
    "planted",
    [
        {SECRET: 1},
        {"other": SECRET},
        {"other": {SECRET: [SECRET]}},
        {"order_id": {"x": SECRET}},
        {"order_id": [SECRET]},
        {"order_id": f"see {SECRET}"},
        {"order_id": "zq@planted-7f3a"},
        {"items": SECRET},
        {"items": [SECRET]},
        {"items": {"sku": SECRET}},
        {"tags": {"": SECRET}},
        {"a.b": SECRET},
        {"": SECRET},
        SECRET,
        [SECRET],
    ],
)
def test_a_planted_string_is_nowhere(planted):
    text = masked(json.dumps(planted), READABLE)
    assert SECRET not in text
    assert "planted-7f3a" not in text


def test_what_is_written_twice_is_shown_twice():
    assert (
        masked('{"x": 1, "x": 2, "order_id": "A"}', READABLE)
        == f'{{"{DOTS}":"{DOTS}","{DOTS}":"{DOTS}","order_id":"A"}}'
    )


@pytest.mark.parametrize("payload", [b"\xff", b"", b"{", "[" * 100_000, SECRET])
def test_what_is_no_json_is_dots_alone(payload):
    assert masked(payload, READABLE) == DOTS


def test_a_tombstone_is_none():
    assert masked(None, READABLE) == "null"


def test_depth_ends_somewhere():
    deep = '{"a":' * 300 + f'"{SECRET}"' + "}" * 300
    assert SECRET not in masked(deep, READABLE)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("550 5.1.1 mailbox unavailable: ada@example.com", f"550 5.1.1 mailbox unavailable: {DOTS}"),
        ("Invalid value 'zq planted' - at `$.items`", f"Invalid value {DOTS} - at `$.items`"),
        (f"no such stock {SECRET}.", f"no such stock {DOTS}."),
        ("says “zq planted”: no", f"says {DOTS}: no"),
        ("GET https://api.example/x?key=zq", f"GET {DOTS}"),
        ("refused: PLANTED", f"refused: {DOTS}"),
        ("HTTP 503 from the provider's server", "HTTP 503 from the provider's server"),
        ("the message is pending again", "the message is pending again"),
        (
            "Expected `int`, got `str` - at `$.items[3].quantity`",
            "Expected `int`, got `str` - at `$.items[3].quantity`",
        ),
        (f"no '{SECRET}' - at `$[...].lines[12]`.", f"no {DOTS} - at `$[...].lines[12]`."),
        ("says 4711 - at `$.items[3]`", f"says {DOTS} - at `$.items[3]`"),
        ("see `$.items[4711]` for more", f"see `$.items[{DOTS}]` for more"),
        ("wrong - at `$.items[3]`: 4711", f"wrong - at `$.items[{DOTS}]`: {DOTS}"),
        ("wrong - at `$[4711]` - at `$[3]`", f"wrong - at `$[{DOTS}]` - at `$[3]`"),
        ("wrong - at `$.items[471147]`", f"wrong - at `$.items[{DOTS}]`"),
        ("wrong - at `$.items[3].zq7`", f"wrong - at `$.items[{DOTS}]{DOTS}`"),
        ("", ""),
    ],
)
def test_an_error_keeps_its_words_and_loses_what_it_repeats(text, shown):
    assert masked_error(text) == shown
