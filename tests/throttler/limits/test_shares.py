"""A process's part of the output rate as time goes by, and the limiter that spends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.throttler.limits.group import Part
from throttler.limits.output_rate import SAVED_US, OutputLimiter
from throttler.limits.rate import RateWindow
from throttler.limits.shares import FRESH_US, HOLDS_US, PARTS, SURE_US, Assigned, OutputShare

SECOND = 1_000_000
SURE = 5 * SECOND
HELD = SURE + FRESH_US + HOLDS_US + SECOND


@pytest.fixture
def share():
    """A process that has had 3 of 12 partitions for long."""
    found = OutputShare(12, SURE)
    found.standing = Assigned(assigned(Assigned(), {0, 1, 2}, 7, -HELD).since, 7)
    return found


def assigned(standing, numbers, generation, now, before=None):
    return standing.assigned(numbers, generation, before or Assigned(), now)


def test_a_grant_holds_for_three_seconds_from_before_it_was_read(share):
    share.ask(600_000, 1000)
    share.granted(600_000, 500)
    assert share.at(500 + HOLDS_US - 1) == 600_000
    assert share.at(500 + HOLDS_US) == 250_000


def test_a_part_is_lowered_before_it_is_written_and_raised_when_it_is(share):
    share.ask(600_000, 0)
    share.granted(600_000, 0)
    share.ask(100_000, SECOND)
    assert share.at(SECOND) == 100_000
    share.granted(100_000, SECOND)
    share.ask(800_000, 2 * SECOND)
    assert share.at(2 * SECOND) == 100_000
    share.granted(800_000, 2 * SECOND)
    assert share.at(2 * SECOND) == 800_000


def test_without_the_database_the_part_is_that_of_the_partitions_once_nobody_counts_on_less(share):
    share.ask(40_000, 0)
    share.granted(40_000, 0)
    assert share.at(SURE_US - 1) == 40_000
    assert share.at(SURE_US) == 250_000


def test_an_answer_that_was_lost_counts_as_given_and_as_not_given(share):
    share.ask(600_000, 0)
    share.granted(600_000, 0)
    share.ask(30_000, 2 * SECOND)
    assert share.at(SURE_US) == 30_000
    assert share.at(2 * SECOND + SURE_US) == 250_000


def test_a_database_that_can_only_be_read_leaves_the_part_of_the_partitions(share):
    for second in range(60):
        share.ask(PARTS, second * SECOND)
    assert share.at(60 * SECOND) == 250_000


def test_new_partitions_count_when_nobody_else_can_count_them_any_more(share):
    share.standing = assigned(Assigned(), {0, 1, 2, 3}, 8, 0, share.standing)
    assert share.at(HELD - 1) == 250_000
    assert share.at(HELD) == 333_333


def test_partitions_that_others_may_have_had_in_between_count_as_new(share):
    share.standing = assigned(Assigned(), {0, 1, 2}, 9, 0, share.standing)
    assert share.at(HELD - 1) == 0
    assert share.at(HELD) == 250_000


STEPS = st.lists(st.tuples(st.integers(-1000, 200_000), st.integers(0, PARTS)), min_size=1, max_size=40)


@given(STEPS, st.integers(1, 5000))
def test_no_span_carries_more_than_its_shares_and_a_small_burst(steps, limit):
    rate, now, part, left, earned = RateWindow(limit, SECOND), 0, Part(), [], [0]
    output = OutputLimiter(rate, part, now)
    for step, new in steps:
        now += step
        earned.append(earned[-1] + max(step, 0) * limit * part.share)
        left.append(output.allowance(now))
        output.spend(left[-1])
        output.settled(now)
        part.share = new
    burst = SECOND * PARTS + SAVED_US * limit * PARTS
    for begin in range(len(steps)):
        for end in range(begin, len(steps)):
            assert sum(left[begin : end + 1]) * SECOND * PARTS <= burst + earned[end + 1] - earned[begin + 1]


def test_a_part_that_was_raised_counts_from_when_it_is_seen():
    part = Part()
    output = OutputLimiter(RateWindow(100, SECOND), part, 0)
    part.share = PARTS
    assert output.allowance(SECOND) == 0
    assert output.allowance(SECOND + 10_000) == 1


def test_a_clock_that_steps_back_earns_nothing():
    output = OutputLimiter(RateWindow(100, SECOND), Part(PARTS), SECOND)
    output.allowance(SECOND)
    assert output.allowance(0) == 0
