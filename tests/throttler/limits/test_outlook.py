"""The forecast of a customer who waits, against a simulation message by message."""

import random
from collections import deque

import pytest

from throttler.limits.forecast import Forecast, Traffic
from throttler.limits.rate import parse_rates, rates_text

HOUR = 3600
DAY_US = 86_400_000_000
MORNING = 20_000 * DAY_US + 8 * HOUR * 1_000_000  # 08:00 of some day


def traffic(**told):
    return Traffic(**{"backlog": 70_140, "oldest": 5 * HOUR + 34 * 60, "arriving": 3.5, "ttl": 6 * HOUR,
                      "now_us": MORNING, **told})  # fmt: skip


def test_what_arrives_faster_than_it_leaves_begins_to_expire_when_the_oldest_is_too_old():
    found = Forecast(traffic(), 2.0)
    assert found.expires_in == pytest.approx(61 * 60, rel=0.01)
    assert found.lost_per_second == 1.5
    assert found.gone_in is None
    assert Forecast(traffic(), 3.5).expires_in is None


def test_what_is_too_old_already_expires_now():
    assert Forecast(traffic(oldest=6 * HOUR), 100.0).expires_in == 0.0


def test_a_held_customer_loses_everything_one_life_after_it_came():
    found = Forecast(traffic(), 0.0)
    assert found.expires_in == 26 * 60
    assert found.lost == 70_140
    assert Forecast(traffic(backlog=0, oldest=0, arriving=0), 0.0).expires_in is None


def test_nothing_that_waits_is_lost_when_there_is_time_for_all_of_it():
    found = Forecast(traffic(backlog=7_200, oldest=600, arriving=0), 2.0)
    assert (found.expires_in, found.lost, found.gone_in) == (None, 0, HOUR)


@pytest.mark.parametrize("seed", range(40))
def test_the_forecast_agrees_with_a_simulation(seed):
    """Every message on its own, leaving one by one, each expiring at its age."""
    chance = random.Random(seed)
    told = traffic(
        backlog=chance.randint(0, 3_000), oldest=chance.uniform(10, 590), ttl=600, arriving=chance.uniform(0, 8)
    )
    leaving = chance.uniform(0.2, 10)
    found = Forecast(told, leaving)
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
    assert Forecast(told, told.leaving(told.enough(rates))).expires_in is None
    assert Forecast(told, told.leaving(rates)).expires_in is not None


def test_a_quota_that_is_spent_lets_nothing_leave_before_it_ends():
    rates = parse_rates("10/s;10000/day")
    spent = traffic(quota=[[DAY_US, MORNING - MORNING % DAY_US, 10_000]])
    assert spent.leaving(rates) == 0.0
    assert rates_text(spent.enough(rates)) == "10/s;86000/day"
    of_yesterday = traffic(quota=[[DAY_US, MORNING - MORNING % DAY_US - DAY_US, 10_000]])
    assert of_yesterday.used(DAY_US) == 0
    late = traffic(now_us=MORNING + 14 * HOUR * 1_000_000, quota=spent.quota)  # 22:00: midnight is within one life
    assert late.leaving(rates) == pytest.approx(10_000 / (6 * HOUR))


@pytest.mark.parametrize("text", ["1/s", "3/min", "5/hour;6/day", "1/s;100/min;1000/day", "1000000/s"])
@pytest.mark.parametrize("used", [0, 5, 900])
def test_enough_is_enough_for_any_windows(text, used):
    rates = parse_rates(text)
    told = traffic(quota=[[one.period_us, MORNING - MORNING % one.period_us, used] for one in rates.windows[1:]])
    enough = told.enough(rates)
    parse_rates(rates_text(enough))
    assert Forecast(told, told.leaving(enough)).expires_in is None
    assert all(new.limit >= old.limit for new, old in zip(enough.windows, rates.windows, strict=True))
    assert told.leaving(told.enough(rates, 2)) >= told.leaving(enough)


def test_nothing_leaves_under_hold():
    assert traffic().leaving(None) == traffic().leaving(parse_rates("0/s")) == 0.0
