"""Masks: what a flow names may be read, everything else is dots, and the shape stays."""

from __future__ import annotations

import ast
import json
import re

import pytest
from django.conf import settings

from config.flows import flows, reader_of
from config.gate import Gate, InvalidRecord
from config.kafka import topic_name
from config.kafka.internals import DamagedBatch
from config.kafka.positions import Log, Mark, Stopped, start_of
from config.payload import Excerpt
from config.telemetry.redaction import DOTS, masked, masked_error
from tests.tree import code

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


# -- What Spillway itself says -----------------------------------------------------------------------------
TOLD = {"InvalidRecord": 1, "ConsumerStopped": 0, "MissingTopic": 0, "Stopped": 0, "RefusedPartition": 1}
STRANGERS = {"“••••…”": DOTS, "“••••”": DOTS}  # quoted


def said(node: ast.expr) -> str:
    """The text that code writes, with dots for what it fills in."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else DOTS for part in parts)


def sentences():
    for module in code():
        for call in ast.walk(module.tree):
            name = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
            if name in TOLD and isinstance(call.args[TOLD[name]], ast.Constant | ast.JoinedStr):
                yield said(call.args[TOLD[name]])


@pytest.mark.parametrize("text", sorted(set(sentences())))
def test_a_sentence_of_ours_comes_through_whole(text):
    for quoted, dots in STRANGERS.items():
        text = text.replace(quoted, dots)
    # Dots alone have the place of a number here.
    assert masked_error(text.replace(f"1 to {DOTS}", "1 to 9")) == text.replace(f"1 to {DOTS}", "1 to 9")


ALARMS = [
    start_of(mark, log)
    for mark, log in (
        (Mark("one", 7), Log("other", 0, 9, None)),
        (Mark("one", 7), Log("one", 8, 9, None)),
        (Mark("one", 7), Log("one", 0, 6, None)),
    )
]  # fmt: skip


@pytest.mark.parametrize("alarm", ALARMS)
def test_why_a_partition_stands_still_is_read_whole_wherever_it_is_said(alarm):
    assert isinstance(alarm, Stopped)
    topic = topic_name(next(iter(settings.KAFKA_TOPICS)))
    for text in (alarm.alarm, f"{topic}/11: {alarm.alarm}", str(DamagedBatch((topic, 11), 4711, "wrong checksum"))):
        assert masked_error(text) == text


def test_the_names_that_spillway_gives_are_read():
    groups = [group for flow in flows() for group in flow.readers()]
    for word in [
        *groups,
        *map(reader_of, groups),
        "KAFKA_MAX_BATCH_BYTES",
        "customer_id",
        topic_name("notifications-in"),
    ]:
        assert masked_error(f"run {word}: do") == f"run {word}: do"
    assert masked_error("KAFKA_BOOTSTRAP_SERVERS=zq7:9092: no") == f"KAFKA_BOOTSTRAP_SERVERS={DOTS}: no"
    assert set(map(reader_of, groups)) == {
        "ingest_events", "track_inventory", "ingest_messages", "listen_outbox", "run_throttler",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", [
        f"go to {SECRET}/3", f"--{SECRET}", "--zq7", "partition zq7", "offsets 12zq to 3", "offset 1.2.3.4", "at most 471147 euros",
        "ttl_seconds is 471147", "moved to 471147", f"{SECRET}=7",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays_hidden(text):
    assert DOTS in masked_error(text)
    assert not re.search(r"zq|471147|\d\.\d", masked_error(text))


@pytest.mark.parametrize("value", [b"x" * 99, Excerpt.of(b"x" * 99), b"[" * 40 + b"]" * 40, b'"\\u0000"', None])
def test_what_a_gate_says_of_a_record_s_size_and_shape_is_read(value):
    with pytest.raises(InvalidRecord) as caught:
        Gate.of(object, 90).decode(value)
    assert masked_error(str(caught.value)) == str(caught.value)
