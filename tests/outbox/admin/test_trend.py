"""Bars, scale and words of letters per hour; pure."""

import re
from datetime import UTC, datetime

import pytest

from config.admin import svg
from outbox.admin.groups.figures import chart_of, trend_of
from outbox.groups.counts import is_rising

NOW = datetime(2026, 11, 23, 17, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        ([0, 0, 0], "0 this hour"), ([1, 1, 2], "2 this hour, steady"), ([0, 9, 12], "12 this hour, rising"),
        ([0, 9, 11], "11 this hour, steady"), ([9, 9, 0], "0 this hour"),
    ],
)  # fmt: skip
def test_a_trend_says_what_its_bars_show(hours, words):
    assert trend_of(hours).words == words
    assert trend_of(hours, came_back=True).words.endswith("came back")


def test_a_handful_is_no_rise():
    assert not is_rising(4, 0)
    assert is_rising(5, 0)
    assert not is_rising(125, 100)
    assert is_rising(126, 100)


def test_bars_stand_on_the_ground_and_stay_in_the_box():
    bars = svg.bars([1, 0, 1000])
    assert [bar.y + bar.height for bar in bars] == [100.0, 100.0]
    assert min(bar.height for bar in bars) == 2.0  # one letter among thousands is seen
    assert all(bar.x >= 0 and bar.x + bar.width <= 1000 for bar in bars)
    assert trend_of([1, 0, 1000]).drawing.count("z") == 2


def test_only_the_hour_under_way_is_marked_and_only_if_letters_rise():
    assert [chart_of(hours, NOW).plot.count('"sw-now"') for hours in ([9, 9, 30], [9, 9, 9], [9, 30, 0])] == [1, 0, 0]
    assert chart_of([9, 9, 30], NOW).plot.index('"sw-now"') > chart_of([9, 9, 30], NOW).plot.rindex("<rect x=")


@pytest.mark.parametrize(
    ("value", "top"), [(0, 2), (1, 2), (3, 4), (9, 10), (11, 20), (412, 600), (1000, 1000), (1001, 2000)]
)
def test_a_scale_halves_well(value, top):
    assert f"<span>{top:,}</span><span>{top // 2:,}</span><span>0</span>" in chart_of([0, value], NOW).plot


def test_a_chart_says_since_when():
    chart = chart_of([0] * 40 + [3, 0, 7, 0, 0, 0, 2, 5], NOW)
    assert chart.caption == "Rising: 5 letters this hour, 2 in the hour before."
    assert chart.rest == "None in the 40 hours before Monday 10:00."
    assert chart_of([0] * 48, NOW).rest == "None in 48 hours."
    assert chart_of([1] * 48, NOW).rest == ""
    assert chart_of([1] * 48, NOW).caption == "1 letter this hour, 1 in the hour before."


def test_times_stand_at_their_hours():
    labels = re.findall(r'<text x="([\d.]+)%" y="12" text-anchor="(\w+)">([^<]+)<', chart_of([1] * 48, NOW).plot)
    assert labels == [
        ("0.0", "start", "Sat 18:00"), ("25.0", "middle", "Sun 06:00"), ("50.0", "middle", "Sun 18:00"),
        ("75.0", "middle", "Mon 06:00"), ("100.0", "end", "now"),
    ]  # fmt: skip
