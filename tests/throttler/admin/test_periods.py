"""Five-minute rows as a line in time: rates, growth, and the age of the oldest message, which no row holds."""

import random
import re
from collections import deque
from datetime import UTC, datetime, timedelta

import pytest

from config.admin.svg import SPANS, nice, span
from throttler.admin.charts import rate_chart
from throttler.customers.situation import Timeline
from throttler.lanes.read_model import PERIOD, period_of
from throttler.models import CustomerPeriod

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def row(start, partition=0, **counts):
    return CustomerPeriod(customer_id="c", partition=partition, start=start, **counts)


@pytest.mark.parametrize("seed", range(20))
def test_the_age_of_the_oldest_follows_from_what_was_buffered_and_what_waits(seed):
    """Against a queue of single messages; exact to the evenness within five minutes."""
    chance = random.Random(seed)
    start, queue, rows, ages = NOON - timedelta(hours=6), deque(), [], []
    for period in range(72):
        coming, leaving = chance.choice([0, chance.randint(100, 900)]), chance.randint(0, 700)
        queue.extend(start + timedelta(minutes=5) * (period + (one + 0.5) / max(1, coming)) for one in range(coming))
        left = min(leaving, len(queue))
        for _ in range(left):
            queue.popleft()
        rows.append(row(start + PERIOD * period, buffered=coming, drained=left, backlog=len(queue)))
        end = start + PERIOD * (period + 1)
        ages.append((end - queue[0]).total_seconds() if queue else 0.0)
    chance.shuffle(rows)
    found = Timeline.of(rows, NOON - timedelta(microseconds=1))
    assert found.ages() == pytest.approx(ages, abs=2)


def test_an_age_beyond_the_first_row_is_not_known():
    found = Timeline.of([row(NOON - PERIOD, buffered=10, backlog=500)], NOON)
    assert found.ages()[0] is None


def test_partitions_are_added_and_holes_keep_the_backlog():
    first = NOON - timedelta(minutes=20)
    rows = [
        row(first, 0, buffered=300, backlog=300),
        row(first, 1, buffered=30, live=3, backlog=30),
        row(NOON, 0, drained=5, backlog=295),
    ]
    found = Timeline.of(rows, NOON + timedelta(minutes=1))
    assert [one.backlog for one in found.periods] == [330, 330, 330, 330, 295]
    assert found.periods[0].arrived == pytest.approx(333 / 300)
    assert found.periods[-1].length == 60
    assert found.went_over == first


def test_the_average_counts_the_time_that_is_over_only():
    rows = [row(NOON - PERIOD, buffered=600, live=300, drained=150), row(NOON, buffered=120)]
    found = Timeline.of(rows, NOON + timedelta(seconds=60))
    assert found.arriving == pytest.approx(1_020 / 360)
    assert found.sent == pytest.approx(450 / 360)
    assert found.growth == pytest.approx((720 - 150) / 6)


@pytest.mark.parametrize(("seconds", "falls"), [(0, False), (5, False), (59, False), (60, True), (290, True)])
def test_a_period_that_has_just_begun_draws_no_fall(seconds, falls):
    """The mirror is a second late: what came in the first seconds is not there yet."""
    rows = [row(NOON - PERIOD * number, buffered=300, drained=150) for number in (3, 2, 1)]
    chart = rate_chart(Timeline.of(rows, NOON + timedelta(seconds=seconds)), [])
    (drawn,) = re.findall('<polyline class="sw-arriving" points="([^"]+)"', chart.plot)
    points = [tuple(map(float, point.split(","))) for point in drawn.split()]
    assert (points[0][0], points[-1][0]) == (0, 1000)
    assert (len({y for _, y in points}) > 1) is falls


def test_what_expired_today_began_at_midnight():
    rows = [row(NOON - timedelta(hours=13), expired=100), row(NOON - timedelta(hours=11), expired=7)]
    found = Timeline.of(rows, NOON)
    assert found.expired_today == 7
    assert found.charted[0].start == NOON - timedelta(hours=12)


def test_nothing_is_known_without_rows():
    found = Timeline.of([], NOON)
    assert (found.arriving, found.growth, found.ages(), found.went_over) == (None, 0.0, [], None)


def test_five_minutes_begin_on_the_clock():
    assert period_of(NOON + timedelta(minutes=9, seconds=59, microseconds=7)) == NOON + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("value", "top"), [(0.013, 0.02), (0.2, 0.2), (1, 1), (3.5, 4), (9, 10), (11, 20), (999, 1000), (1_200, 2_000)]
)
def test_the_top_of_a_scale_halves_well(value, top):
    assert nice(value) == pytest.approx(top)
    assert nice(value * 1.0001, 1 / 1000) == pytest.approx(top)


def test_the_top_of_an_age_is_a_length_that_people_know():
    assert [span(seconds) for seconds in (1, 61, 6.6 * 3600, 40 * 86_400)] == [60, 120, 8 * 3600, 40 * 86_400]
    assert span(30 * 86_400) == SPANS[-1]
