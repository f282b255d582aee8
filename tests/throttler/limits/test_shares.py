"""The output rate divided among owners: its sum stays below the limit, whoever knows what of whom."""

from hypothesis import given
from hypothesis import strategies as st

from throttler.limits.rate import RateWindow
from throttler.limits.shares import BURST_US, PARTS, DemandReport, OutputLimiter, agreed, alone

OWNERS = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 6), st.booleans()), min_size=1, max_size=6)


@given(OWNERS, st.integers(0, 5), st.sets(st.integers(0, 5)))
def test_the_sum_is_never_above_the_limit_also_when_some_missed_a_late_report(owners, late, missed):
    partitions = sum(owned for _, owned, _ in owners)
    reports = {i: DemandReport(str(i), demand, owned) for i, (demand, owned, speaks) in enumerate(owners) if speaks}
    total = 0
    for i, (_, owned, _) in enumerate(owners):
        seen = [report for j, report in reports.items() if j == i or not (j == late and i in missed)]
        total += agreed(seen, str(i), owned, partitions, sure=i != late)
    assert total <= PARTS


def test_demand_divides_and_the_silent_keep_the_part_of_their_partitions():
    reports = [DemandReport("a", 30, 2), DemandReport("b", 10, 2)]
    assert agreed(reports, "a", 2, 4, sure=True) == 750_000
    assert agreed(reports, "a", 2, 8, sure=True) == 375_000
    assert agreed(reports, "c", 4, 8, sure=True) == alone(4, 8) == 500_000


STEPS = st.lists(st.tuples(st.integers(-1000, 200_000), st.integers(0, PARTS)), min_size=1, max_size=40)


@given(STEPS, st.integers(1, 5000))
def test_no_span_carries_more_than_its_shares_and_a_small_burst(steps, limit):
    rate, now, share, left, earned = RateWindow(limit, 1_000_000), 0, 0, [], [0]
    output = OutputLimiter(rate, now)
    for step, new in steps:
        now += step
        earned.append(earned[-1] + max(step, 0) * limit * share)
        left.append(output.allowance(now))
        output.spend(left[-1])
        output.set_share(new, now)
        share = new
    burst = 1_000_000 * PARTS + BURST_US * limit * PARTS
    for begin in range(len(steps)):
        for end in range(begin, len(steps)):
            assert sum(left[begin : end + 1]) * 1_000_000 * PARTS <= burst + earned[end + 1] - earned[begin + 1]


def test_a_new_share_counts_from_when_it_was_set():
    output = OutputLimiter(RateWindow(100, 1_000_000), 0)
    output.set_share(PARTS, 1_000_000)
    assert output.allowance(1_000_000) == 0


def test_a_clock_that_steps_back_earns_nothing():
    output = OutputLimiter(RateWindow(100, 1_000_000), 1_000_000, PARTS)
    assert output.allowance(0) == 0
