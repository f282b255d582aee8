"""Words, drawings and payloads, as functions of values."""

from datetime import UTC, datetime, timedelta

import pytest

from config.admin import humanize
from config.admin.humanize import pretty
from config.admin.svg import FULL, HALF, draw, points
from config.flows import Stage

NOW = datetime(2026, 11, 21, 8, 41, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0.4 s"), (20, "20 s"), (60, "1 min"), (250, "4 min 10 s"), (38 * 60, "38 min"),
        (6000, "1 h 40 min"),
        (3600, "1 h"), (14 * 3600, "14 h"), (86_400, "1 day"), (3 * 86_400, "3 days"), (-5, "0.0 s"),
    ],
)  # fmt: skip
def test_lengths(seconds, text):
    assert humanize.length(seconds) == text


def test_ages():
    assert humanize.ago(NOW - timedelta(seconds=250), NOW) == "4 min ago"
    assert humanize.ago(NOW + timedelta(minutes=61), NOW) == "in 1 h 1 min"
    assert humanize.ago(NOW + timedelta(seconds=0.5), NOW) == "0 s ago"  # two clocks
    assert humanize.ago(None, NOW) == "–"
    assert humanize.clock(NOW, NOW) == "08:41:20"
    assert humanize.clock(NOW - timedelta(days=1), NOW) == "20 Nov 2026 08:41:20"


def test_numbers():
    assert [humanize.rate(number) for number in (0, 3.52, 14.2, 212.4)] == ["0", "3.5", "14.2", "212"]
    assert humanize.plural(1064, "letter", "letters") == "1,064 letters"
    assert humanize.bounded(10_001, 10_000) == "10,000+"


def test_one_of_a_thing_is_no_plural():
    assert [humanize.word(number, "message waits", "messages wait") for number in (0, 1, 2)] == [
        "messages wait", "message waits", "messages wait",
    ]  # fmt: skip


def test_names_in_backticks_are_quoted_for_people():
    assert humanize.quoted("no `a`, and `b`") == "no “a”, and “b”"
    assert humanize.quoted("5` of a minute") == "5` of a minute"


def test_a_chain_fills_the_width():
    drawing = draw([Stage(str(number), "1") for number in range(5)])
    assert len(drawing.boxes) == 5
    assert len(drawing.links) == 4
    assert drawing.boxes[-1].x + drawing.boxes[-1].width == pytest.approx(100, abs=0.01)
    assert drawing.height == FULL
    assert draw([]).boxes == []


def test_parallel_stages_are_half_as_high_and_joined():
    drawing = draw([Stage("a", "1"), [Stage("b", "1"), Stage("c", "1", tone="bad", word="Paused")], Stage("d", "1")])
    assert [box.height for box in drawing.boxes] == [FULL, HALF, HALF, FULL]
    assert len(drawing.links) == 4
    assert [link.broken for link in drawing.links] == [False, True, False, True]


def test_a_box_speaks():
    (box,) = draw([Stage("Deliver", "12", "in work", ["7 stuck", "oldest 4 min"], tone="warn", word="Stuck")]).boxes
    assert box.label == "Deliver: 12 in work, 7 stuck, oldest 4 min, Stuck"


def test_points():
    assert points([1, 1, 1], 40, 10) == "0,5 40,5"
    assert points([0, 10], 40, 10) == "0.0,10.0 40.0,0.0"


def test_payloads_keep_every_token():
    assert pretty(b'{"a":1.50,"a":[],"b":{"c":null}}') == '{\n  "a": 1.50,\n  "a": [],\n  "b": {"c": null}\n}'
    assert pretty(None) == "null: a tombstone"
    assert pretty(b"\xff\x00\xe2\x80\xae") == "\\xff\\x00\\u202e"
    assert pretty('{"a":"\\ud800"}') == '{"a": "\\ud800"}'
    assert pretty("x" * 70_000).endswith("… 4,464 more characters")
    assert pretty("[" * 5000).startswith("[[[")


def test_a_phone_lists_two_of_many_channels_those_in_trouble_first():
    channels = [Stage(name, "1") for name in "abcd"]
    assert [(box.stage.name, box.more) for box in draw([channels]).listed] == [("a", 0), ("b", 2)]
    channels[2:] = [Stage(name, "0", tone="bad", word="Paused") for name in "cd"]
    assert [(box.stage.name, box.more) for box in draw([channels]).listed] == [("c", 0), ("d", 2)]
    channels[1] = Stage("b", "0", tone="bad", word="Paused")
    assert [(box.stage.name, box.more) for box in draw([channels]).listed] == [("b", 0), ("c", 0), ("d", 1)]
    assert [box.more for box in draw([Stage("one", "1"), channels[:2]]).listed] == [0, 0, 0]
