"""Stores that are away: what waits for them, what does not, and how much of it."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import pytest

from config.telemetry import metrics
from tests.exported import exported
from tests.throttler.worker.bench import Bench, Store
from throttler.engine.repair import Reread, Rereader, Suspect, spans_of
from throttler.overflow.store import LaneRange
from throttler.worker.owner import SHORTEST


@pytest.fixture
def letters():
    return Store()


@pytest.fixture
def apart(settings, letters):
    """Letters have a writer of their own, as with the store in Cassandra."""
    found = Bench(settings, letters)
    found.adopt()
    found.turn()
    return found


@pytest.fixture
def bench(settings):
    settings.THROTTLER_STALL_RECORDS = 100
    found = Bench(settings)
    found.adopt()
    found.turn()
    return found


def offset(bench):
    return bench.producer.offsets["notifications-in", 0]


def test_rows_are_stored_and_drained_while_a_letter_waits(apart, letters):
    apart.arrive(range(20))
    apart.arrive_poison([20])
    apart.arrive(range(21, 40))
    apart.run(5)
    assert apart.producer.numbers() == [*range(20), *range(21, 40)]
    assert (offset(apart), apart.owner.write_behind.busy) == (20, False)
    letters.store()
    apart.turn(0.1)
    assert offset(apart) == 40


def test_a_letter_is_stored_while_rows_wait(apart, letters):
    apart.arrive(range(12))  # two of them over the rate
    apart.arrive_poison([12])
    apart.turn(0.1)
    assert [len(batch.records) for batch, _number in letters.jobs] == [1]
    letters.store()
    apart.turn(0.1)
    assert offset(apart) == 10
    apart.run(1)
    assert (apart.producer.numbers(), offset(apart)) == ([*range(12)], 13)


def test_letters_of_a_partition_that_is_given_up_are_forgotten(apart, letters):
    apart.arrive_poison([0])
    apart.owner.post(apart.owner.give_up, {0})
    apart.turn()
    assert not letters.jobs


def test_a_partition_is_full_until_half_of_what_it_may_have_is_stored(bench):
    part = bench.context.parts[0]
    bench.arrive(range(40))  # ten of them leave at once
    bench.turn()
    bench.arrive(range(40, 110))
    bench.turn()
    assert (part.waiting, bench.owner.stalled) == (100, set())
    bench.arrive([110])
    bench.turn()
    assert (part.waiting, bench.owner.stalled) == (101, {0})
    part.stored(1)
    bench.turn()
    assert (part.waiting, bench.owner.stalled) == (71, {0})
    part.stored(2)
    bench.turn()
    assert (part.waiting, bench.owner.stalled) == (1, set())


def test_letters_that_wait_make_a_partition_full_too(apart, settings):
    settings.THROTTLER_STALL_RECORDS = 100
    apart.arrive_poison(range(101))
    apart.turn()
    assert (apart.owner.stalled, exported(metrics.THROTTLER_STALLED)) == ({0}, {("0",): 1})
    apart.owner.post(apart.owner.give_up, {0})
    apart.turn()
    assert (apart.owner.stalled, exported(metrics.THROTTLER_STALLED)) == (set(), {})


def test_a_row_that_the_store_refuses_leaves_its_lane_with_the_offset_and_once(bench):
    bench.arrive(range(15))
    bench.turn()
    part = bench.context.parts[0]
    row = next(one.row for batch, _number in bench.store.jobs for one in batch.records if one.offset == 12)
    for _ in range(2):
        bench.handler.refused.put(row)  # its letter is there, the rest of the batch is not
    bench.turn(0.01)
    assert (part.lanes["a"].backlog, offset(bench)) == (5, 10)
    bench.store.store()
    del bench.store.rows["a", 12]
    bench.turn(0.01)
    assert (part.lanes["a"].backlog, offset(bench), part.totals["refused"]) == (4, 15, 1)
    bench.run(2)
    assert bench.producer.numbers() == [*range(12), 13, 14]


def test_a_lane_that_lost_messages_for_good_goes_on_at_once(bench):
    bench.arrive(range(30))
    bench.turn()
    bench.store.store()
    for number in range(15, 20):
        del bench.store.rows["a", number]
    bench.turn(0.1)
    bench.pages.answer()
    bench.turn()
    assert bench.context.drain.suspended == {(0, "a"): (15, 20)}
    (suspect,) = bench.asked.pop()
    bench.owner.repairs.rereader.found.put(Reread(suspect.lane, 5))
    bench.run(3)
    assert (bench.asked, bench.context.drain.suspended) == ([], {})
    assert bench.producer.numbers() == [*range(15), *range(20, 30)]
    assert bench.context.parts[0].totals["lost"] == 5


def test_rows_are_missed_by_whoever_owns_the_lane_only(bench):
    """Who slept past its session misses what others have drained since, and their days may be dropped."""
    heard, bench.owner.repairs.heard = [-math.inf], lambda: heard[0]
    bench.arrive(range(30))
    bench.turn()
    bench.store.store()
    bench.store.rows.clear()
    bench.turn(0.1)
    bench.pages.answer()
    bench.turn()
    assert bench.context.drain.suspended == {(0, "a"): (0, 20)}
    heard[0] = time.monotonic() - 1  # a heartbeat of before
    bench.turn()
    assert bench.asked == []
    heard[0] = time.monotonic()
    bench.turn()
    assert [suspect.epoch for suspect in bench.asked.pop()] == [1]


def test_lanes_are_read_again_together():
    """One reading of the log for all that were asked for, each lane once."""
    rereader = Rereader(SimpleNamespace())
    rereader.close()
    lanes = [LaneRange(number % 2, f"c{number}", "t", number, 50 + number, None, 9) for number in range(6)]
    for lane in [*lanes[:4], lanes[1], *lanes[4:]]:
        rereader.ask([Suspect(lane, 9, False)])
    found = rereader._next()
    assert sorted(one.lane.customer_id for one in found) == [f"c{number}" for number in range(6)]
    assert spans_of(found) == {0: (1, 54), 1: (2, 55)}


def test_the_owner_does_not_look_every_moment_for_a_store_that_is_away(bench):
    bench.store.busy = True
    assert bench.owner._patience() == SHORTEST
    bench.store.waiting = True
    assert bench.owner._patience() > SHORTEST
