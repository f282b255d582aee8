"""One situation, three outlets: home, the customer's page and the API never contradict each other."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from config.admin import humanize
from config.database.clock import database_now
from tests.throttler.admin.conftest import (
    LIST,
    PAGE,
    _long_runway,
    _plain_http,
    add_customer,
    add_lane,
    add_owner,
    add_periods,
    boss,
    waiting,
)
from throttler import home
from throttler.api import expected
from throttler.customers.situation import situation_of, situations_of
from throttler.flow import Throttler
from throttler.messages import microseconds
from throttler.models import Customer, Lane, LaneOwner

__all__ = ["_long_runway", "_plain_http", "boss", "waiting"]
pytestmark = pytest.mark.django_db
NAME = "harbour-foods"


def need_on_home(now: datetime) -> home.Need:
    (need,) = [need for need in Throttler().home_row(now).needs if NAME in need.title]
    return need


def page(client, url=PAGE):
    return " ".join(client.get(url).content.decode().split())


def test_home_and_page_name_the_same_moment_and_the_api_agrees(boss, waiting):
    now = database_now()
    forecast = situation_of(waiting.row, now).forecast
    need = need_on_home(now)
    assert need.until == now + timedelta(seconds=forecast.expires_in)
    first = humanize.length(forecast.expires_in, coarse=True)
    assert "The oldest has waited 5 h 34 min; messages live 6 h." in need.why
    assert f"At today's rate the first is given up in {first}." in need.why
    assert need.amount == 70_140
    html = page(boss)
    assert re.search(r"Messages start to expire at (\d+ \w+ )?\d\d:\d\d, in 1 h( \d+ min)?\.", html)
    assert first.startswith("1 h")
    assert "Expiring" in page(boss, LIST)
    answer = expected(NAME, 1, now)
    assert (answer["backlog"], answer["would_expire"]) == (70_140, 1), "35,070 s at 2/s, and a life of 21,600 s"
    assert forecast.lost == 70_140 - 2 * 21_600


def test_where_all_leave_in_time_each_says_so(boss, waiting):
    Customer.objects.update(rates="10/s")
    now = database_now()
    need = need_on_home(now)
    assert (need.urgency, need.until, need.title) == ("soon", None, f"Messages of {NAME} leave late")
    assert "At today's rate all of them leave in time." in need.why
    assert "Nothing expires; the backlog is gone by" in page(boss)
    assert "Expiring" not in page(boss, LIST)
    assert expected(NAME, 1, now) == {"backlog": 70_140, "eta_seconds": 7_015, "would_expire": 0}


def test_what_the_rate_of_all_may_hold_back_home_keeps_in_sight(waiting, settings):
    Customer.objects.update(rates="10/s")
    settings.THROTTLER_OUTPUT_RATE = "5/s"
    assert "leave in time, if THROTTLER_OUTPUT_RATE lets them." in need_on_home(database_now()).why


def test_on_hold_all_name_the_end_of_the_oldest(boss, waiting):
    Customer.objects.update(held=True)
    now = database_now()
    need = need_on_home(now)
    assert need.until == pytest.approx(now + timedelta(minutes=26), abs=timedelta(seconds=5))
    assert "They are on hold." in need.why
    assert re.search(r"given up in 2[56] min\. To resume", need.why)
    assert re.search(r"On hold\..*in 2[56] min", page(boss))
    assert expected(NAME, 2, now) == {"backlog": 70_140, "eta_seconds": None, "would_expire": 2}


def test_where_nobody_reports_nobody_has_a_forecast(boss, waiting):
    LaneOwner.objects.update(updated_at=database_now() - timedelta(seconds=30))
    now = database_now()
    assert "No throttler works on them, so there is no forecast." in need_on_home(now).why
    assert "There is no forecast until one reports." in page(boss)
    assert set(expected(NAME, 1, now).values()) == {None}


def test_home_names_who_loses_messages_before_one_who_waits_longer_and_loses_none(waiting):
    add_customer("quick", "100/s"), add_lane("quick", 100, timedelta(hours=5, minutes=59), limiter={})
    (need,) = [need for need in Throttler().home_row(database_now()).needs if "Messages of" in need.title]
    assert need.title == f"Messages of {NAME} are about to expire"


def test_of_an_empty_queue_neither_says_that_something_is_old(boss):
    """A lane that a restore emptied, or somebody's statement, may keep the time of what has left."""
    add_customer(), add_owner(), add_lane(backlog=0, oldest_at=database_now() - timedelta(hours=5, minutes=59))
    picture = Throttler().home_row(database_now())
    assert [need.title for need in picture.needs if NAME in need.title] == []
    assert home.still_expiring([NAME], database_now()) == []
    assert "nothing waits" in page(boss)
    assert "expire" not in page(boss).partition("<dl")[0].partition("<h1>")[2]
    Customer.objects.update(held=True)
    (need,) = [need for need in Throttler().home_row(database_now()).needs if need.kind == "on_hold"]
    assert (need.since, need.why[:29]) == (None, "Nothing waits for them now; w")


def test_an_empty_queue_that_will_grow_is_foretold_as_one_that_grows(boss):
    """More arrives than may leave since the backlog was dropped: once the table of rates called it none."""
    add_customer(rates="2/s"), add_owner(), add_lane(backlog=0), add_periods()
    tried = page(boss).partition("What a new rate would do")[2].partition("</section>")[0]
    assert re.findall(r'<td class="sw-number">([^<]+)</td>', tried)[:2] == ["grows", "5,400/h"]


@pytest.mark.parametrize("hours", [0.05, 0.3, 3])
def test_many_at_once_have_the_forecast_of_their_page(hours):
    rows = [add_customer("one", "2/s"), add_customer("two", "3/min"), add_customer("none", "2/s")]
    add_lane("one", 900, timedelta(minutes=9)), add_lane("two", 9, timedelta(minutes=2)), add_owner()
    add_periods("one", hours), add_periods("two", 5, arriving=0.1, leaving=0.05)
    now = database_now()
    for row, found in zip(rows, situations_of(rows, now), strict=True):
        alone = situation_of(row, now)
        assert (found.forecast, found.owned, found.rates) == (alone.forecast, alone.owned, alone.rates)


def test_the_quota_of_the_api_is_that_of_the_lanes_and_nonsense_in_a_row_is_the_default():
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)
    told = {"topic_id": "t", "first": 1, "drained": 0, "seen": 9, "updated_at": noon}
    limiter = {
        "tat": [microseconds(noon)],
        "quota": [[86_400_000_000, microseconds(noon - timedelta(hours=12)), 10_000]],
    }
    Lane.objects.create(customer_id="C-7", partition=0, backlog=4, limiter=limiter, **told)
    Customer.objects.create(customer_id="C-7", rates="10/s;10000/day", created_at=noon, updated_at=noon)
    LaneOwner.objects.create(name="a", updated_at=noon - timedelta(seconds=1))
    assert list(expected("C-7", 1, noon).values()) == [4, 12 * 3600, 1]
    Customer.objects.update(rates="nonsense")
    assert list(expected("C-7", 1, noon).values()) == [4, 1, 0]  # the default rate, as the owners take it


def test_home_asks_as_often_for_fifty_who_lose_messages_as_for_one(waiting, django_assert_max_num_queries):
    now = database_now()
    with django_assert_max_num_queries(45) as few:
        Throttler().home_row(now)
    for number in range(50):
        add_customer(f"c{number}"), add_lane(f"c{number}", partition=5)
    with django_assert_max_num_queries(len(few)):
        Throttler().home_row(now)
