"""Drawings: what is drawn is escaped, has a name or is hidden, and colours are left to the sheets."""

from datetime import UTC, datetime, timedelta

import pytest

from config.admin import svg

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOSTILE = '"><script>&'


def test_all_is_escaped():
    drawn = svg.picture(HOSTILE, [svg.element("text", HOSTILE, css=HOSTILE)], HOSTILE)
    assert "<script" not in drawn
    assert drawn.count("&quot;&gt;&lt;script&gt;&amp;") == 4


def test_a_picture_has_a_name_or_is_hidden():
    assert svg.picture("a", []) == '<svg class="a" aria-hidden="true"/>'
    assert 'role="img" aria-label="Three"' in svg.chart("a", [], "Three")
    assert "hidden" not in svg.chart("a", [], heading="rate")


def test_nothing_is_styled_in_place():
    parts = svg.parts([("ok", "done", 1)], 100, 2)
    scale = svg.Scale(NOON, NOON + timedelta(hours=1), 10)
    drawn = svg.chart("a", [svg.grid(), scale.line("b", [(NOON, 1)]), svg.level("c", 5)]) + svg.progress(parts, mark=50)
    assert not any(name in drawn for name in ("style=", "fill=", "stroke="))


@pytest.mark.parametrize(
    ("changes", "line"),
    [([], []), ([(-1, 5)], [(0, 5), (1, 5)]), ([(-1, 5), (0.5, 2)], [(0, 5), (0.5, 5), (0.5, 2), (1, 2)])],
)
def test_a_change_is_a_step(changes, line):
    hour = timedelta(hours=1)
    drawn = svg.steps([(NOON + hour * at, value) for at, value in changes], NOON, NOON + hour)
    assert [((moment - NOON) / hour, value) for moment, value in drawn] == line


def test_a_value_above_the_top_stays_at_the_top():
    assert svg.Scale(NOON, NOON + timedelta(hours=1), 10).y(11) == 0


def test_parts_follow_each_other_and_the_smallest_is_seen():
    parts = svg.parts([("ok", "done", 999_999), ("bad", "failed", 1), ("warn", "refused", 0)], 50, 1_000_000)
    assert [(part.x, part.width) for part in parts] == [(0.0, 50.0), (50.0, 0.4), (50.4, 0.0)]
    assert svg.progress(parts).count("<rect") == 3  # the track, and two parts that are there


def test_what_is_too_near_to_now_gives_way():
    day = NOON + timedelta(hours=12)
    assert [word in svg.times(NOON, day, now=200) for word in ("12:00", "15:00", "now", "18:00")] == [1, 0, 1, 1]
