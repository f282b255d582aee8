"""Rates as people write them: what is accepted, and the one line for what is not."""

import pytest

from throttler.limits.rate import BadRates, Rates, RateWindow, parse_rates, rates_text

SECOND, DAY = 1_000_000, 86_400_000_000


def test_windows_come_shortest_first_whatever_their_order():
    assert parse_rates("10000/day; 10/s") == Rates((RateWindow(10, SECOND), RateWindow(10_000, DAY)), 10)


@pytest.mark.parametrize(
    ("text", "burst"), [("10/s", 10), ("600/min", 10), ("30/min", 1), ("1/day", 1), ("1000000/s", 1_000_000)]
)
def test_the_burst_is_a_seconds_worth_and_at_least_one(text, burst):
    assert parse_rates(text).burst == burst
    assert parse_rates(text, 7).burst == 7


@pytest.mark.parametrize("text", ["0/s", "0/day", " 0/min "])
def test_zero_is_hold(text):
    rates = parse_rates(text)
    assert rates.held
    assert rates_text(rates) == "0/s"


@pytest.mark.parametrize(
    "text", ["10/s", "10/s;10000/day", "1/min;2/hour;3/day", "1000000/s", "0/s", "10/s;999999/min"]
)
def test_the_spelling_is_read_back_as_the_same(text):
    assert rates_text(parse_rates(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "10", "10/", "/s", "1/week", "5/10s", "-1/s", "1.5/s", "10/s;", "10/s;10/s", "10/s;20/s", "0/s;5/day",
        "1000001/s", "9999999999999/s", "9" * 5000, "١/s", "10/s\n", "10/S", "10/s;1/min;1/hour;1/day;2/day", "10\x00/s",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_short_line(text):
    with pytest.raises(BadRates) as error:
        parse_rates(text)
    assert "\n" not in str(error.value)
    assert 0 < len(str(error.value)) < 150


@pytest.mark.parametrize("burst", [0, -1, 1_000_001])
def test_a_burst_of_nothing_or_without_end_is_refused(burst):
    with pytest.raises(BadRates, match="burst"):
        parse_rates("10/s", burst)


def test_an_interval_that_is_no_whole_number_is_rounded_up():
    assert parse_rates("3/s").interval_us == 333_334
    assert parse_rates("1000000/s").interval_us == 1
