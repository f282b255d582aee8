"""The limiter: what it guarantees over any schedule, any clock, any change of rate and any restart."""

import json
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from throttler.limits import limiter
from throttler.limits.limiter import LimiterState
from throttler.limits.rate import parse_rates

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
NOW = 1_800_000_000 * SECOND
RATES = st.builds(
    parse_rates,
    st.sampled_from(["3/s", "10/s", "7/min", "700001/s", "1000000/s", "3/s;5/min", "30/s;20/min;30/hour"]),
    st.none() | st.integers(1, 50),
)
STEPS = st.integers(0, 3 * SECOND) | st.integers(0, 20) | st.integers(-MINUTE, 0)
SCHEDULE = st.lists(st.tuples(STEPS, st.integers(1, 60), st.booleans()), min_size=1, max_size=40)


def run(rates, state, schedule, now=NOW):
    """(elapsed, now, left) of each step; elapsed is what a clock that never steps back would have counted."""
    elapsed, steps = 0, []
    for step, wanted, single in schedule:
        now, elapsed = now + step, elapsed + max(step, 0)
        left = int(limiter.take_one(rates, state, now)) if single else limiter.allowance(rates, state, now, wanted)
        if not single:
            limiter.spend(rates, state, now, left)
        state = limiter.from_plain(*json.loads(json.dumps(limiter.to_plain(state))))
        steps.append((elapsed, now, left))
    return steps, state


def check_spans(rates, steps):
    shortest = rates.windows[0]
    for begin, (start, _, _) in enumerate(steps):
        count = 0
        for end, _, left in steps[begin:]:
            count += left
            if count:
                assert count <= rates.burst + Fraction(shortest.limit * (end - start), shortest.period_us)


@given(RATES, SCHEDULE)
def test_no_span_carries_more_than_burst_and_rate(rates, schedule):
    check_spans(rates, run(rates, LimiterState(), schedule)[0])


@given(RATES, SCHEDULE, st.integers(1, 40 * HOUR), st.integers(0, 2 * MINUTE))
def test_a_clock_that_went_forward_while_no_time_passed_changes_nothing(rates, schedule, by, wait):
    steps, state = run(rates, LimiterState(), schedule)
    real = steps[-1][1] + wait
    moved = limiter.from_plain(*limiter.to_plain(state))
    limiter.shift(moved, by, real + by)
    assert limiter.allowance(rates, moved, real + by, 60) == limiter.allowance(rates, state, real, 60)


LATE = st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 60), st.integers(0, 2 * MINUTE)), min_size=1)


@given(RATES, LATE)
def test_what_left_late_keeps_to_the_rates_by_when_it_left(rates, schedule):
    state, now, steps = LimiterState(), NOW, []
    for step, wanted, late in schedule:
        now += step
        count = limiter.allowance(rates, state, now, wanted)
        limiter.spend(rates, state, now, count)
        if count:
            limiter.left_late(rates, state, now, now + late, count)
        limiter.next_due(rates, state, now)  # of a moment that has passed: it must not matter
        now += late
        steps.append((now, now, count))
    check_spans(rates, steps)
    for window in rates.windows[1:]:
        counts = Counter()
        for _, left, count in steps:
            counts[left // window.period_us] += count
        assert all(count <= window.limit for count in counts.values())


# Chance seldom takes six one by one within a minute, or goes back by more than a minute close to its end.
@example(parse_rates("3/s;5/min"), [(SECOND, 1, True)] * 6)
@example(parse_rates("30/s;20/min"), [(0, 19, False), (-27_530, 1, False), (-59_972_471, 1, False), (33_334, 1, False)])
@given(RATES, SCHEDULE)
def test_no_quota_window_carries_more_than_its_limit(rates, schedule):
    steps = run(rates, LimiterState(), schedule)[0]
    for window in rates.windows[1:]:
        counts, number, end = Counter(), 0, 0
        for _, now, left in steps:
            if now >= end:
                number, end = number + 1, now - now % window.period_us + window.period_us
            # A window that the clock left backwards goes on, for a whole period if it is further away than that.
            elif now < end - 2 * window.period_us:
                end = now + window.period_us
            counts[number] += left
        assert max(counts.values()) <= window.limit


@given(st.integers(0, MINUTE - 1), st.integers(1, 40 * HOUR), st.integers(0, MINUTE - 1), st.booleans())
def test_a_clock_that_steps_back_gives_no_quota_again(begun, by, wait, single):
    rates, state = parse_rates("30/s;20/min;30/hour"), LimiterState()
    limiter.spend(rates, state, NOW + begun, 20)
    for now in (NOW + begun - by, NOW + begun - by + min(wait, MINUTE - 1 - begun)):
        assert limiter.next_due(rates, state, now) > now
        assert not (limiter.take_one(rates, state, now) if single else limiter.allowance(rates, state, now, 1))


@given(RATES, RATES, SCHEDULE, SCHEDULE)
def test_a_new_rate_frees_at_most_its_own_burst(old, new, before, after):
    steps, state = run(old, LimiterState(), before)
    limiter.adopt(new, state, steps[-1][1])
    assert state.tat <= steps[-1][1] + new.burst_us
    check_spans(new, run(new, state, after, steps[-1][1])[0])


@given(RATES, SCHEDULE, st.integers(1, 60))
def test_what_is_allowed_is_what_one_by_one_would_be(rates, schedule, wanted):
    steps, state = run(rates, LimiterState(), schedule)
    now, copy = steps[-1][1], limiter.from_plain(*limiter.to_plain(state))
    singles = sum(limiter.take_one(rates, copy, now) for _ in range(wanted))
    assert singles <= limiter.allowance(rates, state, now, wanted)
    if rates.interval_us * rates.windows[0].limit == rates.windows[0].period_us:
        assert singles == limiter.allowance(rates, state, now, wanted)


@given(RATES, SCHEDULE)
@example(  # The clock steps back over a minute while the customer is over the rate.
    parse_rates("30/s;20/min;30/hour", None), [(0, 20, False), (-15536711, 1, False), (-44463290, 1, True)]
)
def test_the_next_one_leaves_when_it_is_due_and_not_before(rates, schedule):
    steps, state = run(rates, LimiterState(), schedule)
    now = steps[-1][1]
    due = limiter.next_due(rates, state, now)
    if due > now:
        assert not limiter.allowance(rates, limiter.from_plain(*limiter.to_plain(state)), due - 1, 1)
    assert limiter.allowance(rates, state, due, 1) == 1


@given(RATES, SCHEDULE, SCHEDULE, st.integers(0, 2 * HOUR))
def test_a_recovered_state_may_be_forgotten(rates, before, after, pause):
    steps, state = run(rates, LimiterState(), before)
    now = steps[-1][1] + pause
    forward = [(max(step, 0), wanted, single) for step, wanted, single in after]
    if limiter.recovered(state, now):
        assert run(rates, state, forward, now)[0] == run(rates, LimiterState(), forward, now)[0]


def test_a_clock_that_was_years_ahead_does_not_close_a_quota_for_years():
    rates, state = parse_rates("10/s;20/min"), LimiterState()
    limiter.spend(rates, state, NOW + 1000 * HOUR, 5)
    assert limiter.allowance(rates, state, NOW + MINUTE, 1) == 0
    assert limiter.next_due(rates, state, NOW + MINUTE) <= NOW + MINUTE + SECOND
    assert state.quota == [[MINUTE, NOW + MINUTE, 5]]


def test_hold_lets_nothing_leave_and_remembers_the_quotas():
    rates, hold, state = parse_rates("10/s;20/hour", 20), parse_rates("0/s"), LimiterState()
    limiter.spend(rates, state, NOW, 20)
    limiter.adopt(hold, state, NOW)
    assert not limiter.take_one(hold, state, NOW)
    assert limiter.allowance(hold, state, NOW, 9) == 0
    assert limiter.next_due(hold, state, NOW) is None
    assert not limiter.recovered(state, NOW + 10 * SECOND)
    assert limiter.recovered(state, NOW + HOUR)
    limiter.adopt(rates, state, NOW + 10 * SECOND)
    assert limiter.allowance(rates, state, NOW + 10 * SECOND, 9) == 0


def test_a_quota_stays_with_its_window_when_others_come_and_go():
    state = LimiterState()
    limiter.spend(parse_rates("10/s;20/hour;30/day"), state, NOW, 7)
    limiter.adopt(parse_rates("10/s;15/min;25/day"), state, NOW)
    assert [(period, used) for period, _, used in state.quota] == [(MINUTE, 0), (24 * HOUR, 7)]


@pytest.mark.parametrize("text", ["3/s", "7/min", "700001/s"])
def test_fractions_of_a_microsecond_never_add_up_for_the_sender(text):
    rates, state, steps = parse_rates(text, 1), LimiterState(), []
    now = NOW
    for _ in range(2000):
        now = limiter.next_due(rates, state, now)
        limiter.spend(rates, state, now, 1)
        steps.append((now - NOW, now, 1))
    span, shortest = steps[-1][0], rates.windows[0]
    assert len(steps) <= rates.burst + Fraction(shortest.limit * span, shortest.period_us)
