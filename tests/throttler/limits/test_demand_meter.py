"""What owners could send, and its division: every customer up to one level, nothing left over, a little for the quiet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.limits.shares import LOOKED_AT, PARTS, DemandMeter, at_level, demand_of, fair_share, level

BUCKETS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 50)), max_size=20)
CLAIMS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 6), BUCKETS.map(demand_of)), min_size=1)


@given(CLAIMS, st.integers(0, PARTS), st.integers(1, 10**9))
def test_the_parts_together_are_the_pool(claims, pool, rate):
    parts = [fair_share(pool, rate, claims, name) for name in claims]
    assert min(parts) >= 0
    assert pool - len(parts) - 1 <= sum(parts) <= pool + 1


@given(BUCKETS, st.floats(0, 10**8))
def test_the_level_uses_up_the_room(buckets, room):
    most = level(buckets, room)
    sent = at_level(tuple(buckets), most)
    assert sent == pytest.approx(room) if most is not None else sent <= room


@given(BUCKETS)
def test_buckets_keep_what_is_wanted_and_weighed(buckets):
    found = demand_of(buckets)
    for column in (0, 1):
        assert sum(one[column] for one in found) == sum(one[column] for one in buckets)
    assert len(found) <= 25


def test_slow_customers_have_all_they_can_send_and_the_fast_share_the_rest():
    slow, fast = demand_of([(1000, 1)] * 1000), demand_of([(10**6, 1)] * 10)
    claims = {"a": (4, slow), "b": (4, fast), "c": (4, demand_of([(1000, 1)] * 999 + [(10**6, 1)]))}
    parts = {name: fair_share(PARTS, 4_000_000, claims, name) for name in claims}
    floor = PARTS // 50 // 3
    assert parts["a"] == pytest.approx(250_000 + floor, abs=2)
    fast_one = (980_000 - 250_000 - 249_750) / 11
    assert parts["b"] == pytest.approx(10 * fast_one + floor, abs=2)
    assert parts["c"] == pytest.approx(249_750 + fast_one + floor, abs=2)


def test_who_wants_nothing_leaves_nearly_all_to_who_does():
    claims = {"a": (6, ()), "b": (6, ((10**9, 5),))}
    assert fair_share(PARTS, 10**6, claims, "a") == PARTS // 100
    assert fair_share(PARTS, 10**6, claims, "b") == 99 * PARTS // 100


def test_what_nobody_wants_goes_by_partitions():
    claims = {"a": (9, ()), "b": (3, ((100_000, 5),))}
    assert fair_share(PARTS, 10**6, claims, "a") == pytest.approx(0.75 * (980_000 - 100_000) + 15_000, abs=1)


def test_the_meter_counts_who_was_sent_and_who_waits_once():
    meter = DemandMeter()
    meter.measure(0, [], 0, None, None)
    meter.sent(["a", "a", "b"])
    meter.sent(["waits"])
    meter.measure(1_000_000, iter(["waits"]), 1, lambda key: (key, 9000, 2), {"a": 1, "b": 3}.get)
    assert meter.demand == demand_of([(2500, 1), (1250, 3), (9000, 2)])
    meter.measure(1_400_000, iter(["waits"]), 1, None, None)
    assert meter.demand
    meter.measure(2_000_000, [], 0, None, None)
    assert meter.demand == ()


def test_of_many_who_wait_some_are_looked_at():
    meter, looked = DemandMeter(), []
    many = 3 * LOOKED_AT
    meter.measure(10**6, iter(range(many)), many, lambda key: looked.append(key) or (str(key), 1000, 1), None)
    assert len(looked) == LOOKED_AT
    assert meter.demand == ((1000 * many, many),)
