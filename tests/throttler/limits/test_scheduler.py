"""The scheduler: who is due, in what order, and how much each gets when not all can have what they want."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from throttler.limits.scheduler import Scheduler


def test_only_who_is_due_has_a_turn_and_then_is_out():
    schedule = Scheduler()
    schedule.add("a", 10)
    schedule.add("b", 20)
    assert schedule.due(15, 100, lambda key: 3) == {"a": 3}
    assert "a" not in schedule
    assert schedule.next_due() == 20


def test_a_lane_that_moved_or_left_is_not_served_at_its_old_time():
    schedule = Scheduler()
    schedule.add("a", 10)
    schedule.add("b", 10)
    schedule.add("a", 30)
    schedule.remove("b")
    assert schedule.due(20, 100, lambda key: 1) == {}
    assert schedule.due(30, 100, lambda key: 1) == {"a": 1}
    assert schedule.next_due() is None


def test_weights_divide_what_is_scarce_also_over_many_ticks():
    schedule, served = Scheduler(), Counter()
    for key, weight in (("a", 1), ("b", 2), ("c", 5)):
        schedule.add(key, 0, weight)
    for _ in range(80):
        served.update(schedule.due(1, 3, lambda key: 1000))
    assert all(abs(served[key] - weight * 30) <= weight for key, weight in (("a", 1), ("b", 2), ("c", 5)))
    assert schedule.due_weight == 8


def test_a_noisy_lane_gets_no_more_than_a_thousand_quiet_ones():
    backlog = {"noisy": 100_000, **dict.fromkeys(range(1000), 1000)}
    schedule, served = Scheduler(), Counter()
    for key in backlog:
        schedule.add(key, 0)
    for _ in range(100):
        shares = schedule.due(1, 777, lambda key: backlog[key] - served[key])
        served.update(shares)
    index = sum(served.values()) ** 2 / (len(backlog) * sum(count**2 for count in served.values()))
    assert sum(served.values()) == 77_700
    assert index > 0.99
    assert max(served.values()) - min(served[key] for key in backlog) <= 1


def test_a_tick_asks_only_lanes_that_are_due_and_have_a_turn():
    schedule, asked = Scheduler(), []
    for key in range(10_000):
        schedule.add(key, 0 if key < 50 else 1000)
    schedule.due(1, 20, lambda key: asked.append(key) or 1)
    assert len(asked) == 20
    schedule.due(1, 1000, lambda key: asked.append(key) or 1)
    assert asked == list(range(50))


def test_lanes_that_move_often_do_not_pile_up():
    schedule = Scheduler()
    for due in range(10_000):
        schedule.add(due % 10, due)
    assert len(schedule._heap) < 100


LANES = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(0, 20)))


@given(LANES, st.lists(st.integers(0, 15), max_size=30))
def test_everybody_gets_all_they_wanted_and_nothing_beyond_the_limit(lanes, limits):
    schedule, left = Scheduler(), {key: count for key, (_, _, count) in lanes.items()}
    for key, (due, weight, _) in lanes.items():
        schedule.add(key, due, weight)
    for now, limit in [*enumerate(limits), (1000, 1000)]:
        shares = schedule.due(now, limit, left.__getitem__)
        assert sum(shares.values()) <= limit
        for key, count in shares.items():
            assert lanes[key][0] <= now
            left[key] -= count
    assert not any(left.values())
    assert len(schedule) == schedule.due_weight == 0


def test_a_lane_that_left_while_it_stood_in_the_round_is_not_served():
    schedule = Scheduler()
    schedule.add("a", 0)
    schedule.add("b", 0)
    schedule.due(1, 1, lambda key: 9)
    schedule.remove("b")
    schedule.add("a", 50)
    assert schedule.due(2, 100, lambda key: 9) == {}
    assert schedule.due_weight == 0
