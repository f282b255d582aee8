"""Which lanes are forgotten: those of which a fresh one would decide the same, of partitions that are still ours."""

from datetime import date
from types import SimpleNamespace

import pytest

from tests.throttler.worker.bench import Bench
from throttler.engine.decisions import Decisions
from throttler.engine.partition import OwnedPartition
from throttler.lanes import state
from throttler.lanes.state import LaneState
from throttler.limits.limiter import LimiterState
from throttler.worker.round import QUIET_US, SECOND_US, SECONDS, LaneEviction
from throttler.worker.snapshot import Snapshot

NOW = 1_000 * QUIET_US
DAY_US = 86_400_000_000


@pytest.fixture
def part():
    return OwnedPartition(0, "t", 1, 0, 0, 0)


@pytest.fixture
def eviction(part):
    return LaneEviction({0: part})


def lane(part, customer="a", tat=NOW - QUIET_US, quota=()):
    found = part.lanes[customer] = LaneState(customer)
    found.limiter = LimiterState(tat, [list(one) for one in quota])
    return found


def test_a_lane_that_has_nothing_to_remember_is_forgotten_and_the_transaction_says_so(part, eviction):
    lane(part)
    assert eviction.forgotten(NOW) == [(part, "a")]
    assert (part.lanes, part.touched) == ({}, True)


@pytest.mark.parametrize(
    "kept",
    [
        lambda part: lane(part, tat=NOW + 1),
        lambda part: lane(part, tat=NOW - QUIET_US + 1),
        lambda part: lane(part, quota=[(DAY_US, NOW - NOW % DAY_US, 1)]),
        lambda part: lane(part).buffer(7, date(2026, 11, 24)),
        lambda part: setattr(lane(part), "changed", True),
        lambda part: setattr(lane(part), "waits", 1),
    ],
    ids=["its rate", "quiet for a moment", "a quota", "a backlog", "logged by this transaction", "rows not stored"],
)
def test_a_lane_that_has_is_kept(part, eviction, kept):
    kept(part)
    assert eviction.forgotten(NOW) == []
    assert (part.lanes.keys(), part.touched) == ({"a"}, False)


def test_every_lane_is_looked_at_within_half_a_minute(part, eviction):
    for number in range(100):
        lane(part, str(number))
    shares = [len(eviction.forgotten(NOW + second * SECOND_US)) for second in range(SECONDS)]
    assert (sum(shares), max(shares)) == (100, 4)
    assert eviction.forgotten(NOW + SECONDS * SECOND_US - 1) == []


def test_keys_that_a_restore_names_go_with_the_next_transaction(part, eviction):
    eviction.forgotten(NOW)
    eviction.forget(part, [b"old"])
    assert part.touched
    assert eviction.forgotten(NOW + 1) == [(part, "old")]
    assert eviction.forgotten(NOW + 2) == []


@pytest.mark.parametrize("later", [1, SECOND_US])
def test_nothing_is_forgotten_of_a_partition_that_was_given_up(part, eviction, later):
    lane(part)
    eviction.forgotten(NOW)
    lane(part, "b")
    eviction.forget(part, [b"old"])
    eviction.parts.clear()
    assert eviction.forgotten(NOW + later) == []


def test_an_owner_logs_null_for_what_it_forgets(settings):
    bench = Bench(settings)
    bench.adopt()
    bench.arrive(range(1))
    bench.run(120, 5)
    logged = [
        value for topic, _partition, key, value in bench.producer.committed if key == b"a" and "changelog" in topic
    ]
    assert logged[-1] is None
    assert state.lane_of("a", state.lane_record_from(logged[0])).backlog == 0


def test_a_lane_that_is_forgotten_before_it_is_reported_is_reported_as_it_was_last(part, eviction):
    """What is purged leaves at once, and a customer on hold has no rate to recover from: both within a second."""
    held = lane(part, tat=0)
    held.buffer(7, date(2026, 11, 24))
    snapshot = Snapshot(SimpleNamespace(pages={}), "p")
    snapshot.adopted(part, NOW)
    [first] = snapshot.take([part], NOW)
    held.leave(7)
    snapshot.committed(Decisions(changed=[(part, held)]), NOW)
    assert eviction.forgotten(NOW) == [(part, "a")]
    [second] = snapshot.take([part], NOW)
    assert [one.backlog for one in (*first.lanes, *second.lanes)] == [1, 0]
