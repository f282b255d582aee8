"""The forecast of a customer who waits, against a simulation message by message; and when the one at a place leaves."""

import random
from collections import deque

import pytest

from throttler.limits.forecast import Forecast, Traffic
from throttler.limits.rate import Rates, RateWindow, parse_rates, rates_text

SECOND = 1_000_000
HOUR = 3600
DAY_US = 86_400_000_000
MORNING = 20_000 * DAY_US + 8 * HOUR * 1_000_000  # 08:00 of some day


def traffic(**told):
    return Traffic(**{"backlog": 70_140, "oldest": 5 * HOUR + 34 * 60, "arriving": 3.5, "ttl": 6 * HOUR,
                      "now_us": MORNING, **told})  # fmt: skip


def forecast_at(told, speed):
    """The forecast at so many messages a second."""
    return Forecast(told, Rates((RateWindow(round(speed * SECOND), SECOND * SECOND),) if speed else (), 1))


def test_what_arrives_faster_than_it_leaves_begins_to_expire_when_the_oldest_is_too_old():
    found = forecast_at(traffic(), 2.0)
    assert found.expires_in == pytest.approx(61 * 60, rel=0.01)
    assert found.lost_per_second == 1.5
    assert found.gone_in is None
    assert forecast_at(traffic(), 3.5).expires_in is None


def test_what_is_too_old_already_expires_now():
    assert forecast_at(traffic(oldest=6 * HOUR), 100.0).expires_in == 0.0


def test_a_held_customer_loses_everything_one_life_after_it_came():
    found = forecast_at(traffic(), 0.0)
    assert (found.leaving, found.expires_in) == (0.0, 26 * 60)
    assert found.lost == 70_140
    assert forecast_at(traffic(backlog=0, oldest=0, arriving=0), 0.0).expires_in is None


def test_nothing_that_waits_is_lost_when_there_is_time_for_all_of_it():
    found = forecast_at(traffic(backlog=7_200, oldest=600, arriving=0), 2.0)
    assert (found.expires_in, found.lost, found.gone_in) == (None, 0, HOUR)


@pytest.mark.parametrize("seed", range(40))
def test_the_forecast_agrees_with_a_simulation(seed):
    """Every message on its own, leaving one by one, each expiring at its age."""
    chance = random.Random(seed)
    told = traffic(
        backlog=chance.randint(0, 3_000), oldest=chance.uniform(10, 590), ttl=600, arriving=chance.uniform(0, 8)
    )
    leaving = chance.uniform(0.2, 10)
    found = forecast_at(told, leaving)
    first, lost, ages = simulated(told, leaving)
    if found.expires_in is None or found.expires_in > 1_500:
        assert first is None or first > 1_300
    else:
        assert first == pytest.approx(found.expires_in, abs=60)
    assert lost == pytest.approx(found.lost, abs=max(15, 0.05 * told.backlog))
    drawn = found.ages(1_200, 20)
    assert drawn[0] == told.oldest
    for at, age in enumerate(drawn):  # where the age falls at once, a minute more or less
        assert any(age == pytest.approx(near, abs=70) for near in ages[max(0, at - 1) : at + 2])


def simulated(told, leaving):
    """When the first expired, how many of those that waited expired, and the age of the oldest each minute."""
    backlog, oldest = told.backlog, told.oldest
    queue = deque(-oldest + oldest * number / backlog for number in range(backlog)) if backlog else deque()
    first, lost, ages, credit, coming, second = None, 0, [told.oldest], 0.0, 0.0, 0
    for second in range(1, 1_501):
        coming += told.arriving
        while coming >= 1:
            queue.append(second - 0.5)
            coming -= 1
        while queue and second - queue[0] > told.ttl:
            sent = queue.popleft()
            first, lost = first or second, lost + (sent < 0)
        credit += leaving
        while queue and credit >= 1:
            queue.popleft()
            credit -= 1
        credit = credit if queue else 0.0
        if second % 60 == 0 and second <= 1_200:
            ages.append(second - queue[0] if queue else 0.0)
    return first, lost, ages


def test_enough_is_the_rate_that_somebody_would_write_and_it_is_enough():
    rates = parse_rates("2/s;150000/day")
    told = traffic(quota=[[DAY_US, MORNING - MORNING % DAY_US, 39_060]])
    assert told.used(DAY_US) == 39_060
    assert rates_text(told.enough(rates)) == "4/s;150000/day"
    assert Forecast(told, told.enough(rates)).expires_in is None
    assert Forecast(told, rates).expires_in is not None


def test_a_quota_that_is_spent_lets_nothing_leave_before_it_ends():
    rates = parse_rates("10/s;10000/day")
    spent = traffic(quota=[[DAY_US, MORNING - MORNING % DAY_US, 10_000]])
    assert Forecast(spent, rates).leaving == 0.0
    assert rates_text(spent.enough(rates)) == "10/s;86000/day"
    of_yesterday = traffic(quota=[[DAY_US, MORNING - MORNING % DAY_US - DAY_US, 10_000]])
    assert of_yesterday.used(DAY_US) == 0
    late = traffic(now_us=MORNING + 14 * HOUR * 1_000_000, quota=spent.quota)  # 22:00: midnight is within one life
    assert Forecast(late, rates).leaving == pytest.approx(10_000 / (6 * HOUR))


@pytest.mark.parametrize("text", ["1/s", "3/min", "5/hour;6/day", "1/s;100/min;1000/day", "1000000/s"])
@pytest.mark.parametrize("used", [0, 5, 900])
def test_enough_is_enough_for_any_windows(text, used):
    rates = parse_rates(text)
    told = traffic(quota=[[one.period_us, MORNING - MORNING % one.period_us, used] for one in rates.windows[1:]])
    enough = told.enough(rates)
    parse_rates(rates_text(enough))
    assert Forecast(told, enough).expires_in is None
    assert all(new.limit >= old.limit for new, old in zip(enough.windows, rates.windows, strict=True))
    assert Forecast(told, told.enough(rates, 2)).leaving >= Forecast(told, enough).leaving


# -- By place: when the last of some messages leaves ---------------------------------------------------------
NOON = MORNING + 4 * HOUR * SECOND
TODAY, YESTERDAY = NOON - DAY_US // 2, NOON - DAY_US // 2 - DAY_US
TEN = ("10/s;10000/day",)


def asked(rates, backlog, count, ttl=6 * HOUR, quota=()):
    """Seconds until the last of `count` more leaves, and how many of them are given up."""
    found = Forecast(Traffic(backlog, 1.0, 0.0, float(ttl), NOON, quota), parse_rates(*rates))
    return found.leaves_in(count), found.given_up(count, ttl)


def test_a_burst_leaves_at_once_and_the_rest_at_the_rate():
    assert asked(("10/s", 5), 0, 5) == (0, 0)
    assert asked(("10/s", 5), 0, 25) == (2, 0)
    assert asked(("10/s", 5), 20, 25) == (5, 0)  # who waits has spent it


def test_what_is_left_of_a_day_leaves_today_and_the_rest_after_midnight():
    quota = [[DAY_US, TODAY, 9_970]]
    assert asked(TEN, 10, 20, quota=quota) == (3, 0)
    assert asked(TEN, 10, 21, quota=quota) == (12 * HOUR, 1)
    assert asked(TEN, 10, 10_021, 48 * HOUR, quota) == (36 * HOUR, 0)


def test_a_spent_day_lets_nothing_go_that_lives_until_the_evening():
    assert asked(TEN, 500, 100, quota=[[DAY_US, TODAY, 10_000]]) == (12 * HOUR, 100)


def test_what_was_used_of_an_earlier_day_or_another_window_does_not_count():
    assert asked(TEN, 1, 9, quota=[[DAY_US, YESTERDAY, 10_000], [HOUR * SECOND, NOON, 10_000]]) == (1, 0)


def test_a_rate_of_zero_or_a_life_of_zero_lets_nothing_leave():
    assert asked(("0/s",), 3, 2) == (None, 2)
    assert asked(("10/s",), 0, 2, ttl=0)[1] == 2


def test_expiry_counts_those_whose_turn_comes_too_late():
    assert asked(("2/s",), 19, 2, ttl=10) == (11, 1)
    assert asked(("2/s",), 100, 2, ttl=10) == (51, 2)


@pytest.mark.parametrize("text", ["2/s", "7/min", "10/s;10000/day", "3/s;100/min;5000/hour", "1/s;3000/hour;9000/day"])
@pytest.mark.parametrize("used", [0, 700, 20_000])
def test_what_is_lost_of_the_backlog_is_what_its_places_say(text, used):
    """The page reckons with an average, the API with places: both lose as many, and none where the other loses none."""
    rates = parse_rates(text)
    quota = [[one.period_us, NOON - NOON % one.period_us, used] for one in rates.windows[1:]]
    for backlog in (1, 900, 20_000, 50_000, 200_000):
        found = Forecast(Traffic(backlog, 60.0, 0.0, 6.0 * HOUR, NOON + SECOND, quota), rates)
        none_sent = Forecast(Traffic(1, 60.0, 0.0, 6.0 * HOUR, NOON + SECOND, quota), rates)
        assert none_sent.given_up(backlog - 1, 6 * HOUR) == pytest.approx(found.lost, abs=1)
        assert (found.leaves_in(0) > 6 * HOUR) == (found.lost > 0)
