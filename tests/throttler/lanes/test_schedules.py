"""Exactly once and in order, whatever is killed; and each rule of the lanes is needed for it."""

import pytest

from tests.throttler.lanes.world import TERMS, faults, run
from throttler.engine.decisions import Decider
from throttler.engine.partition import OwnedPartition
from throttler.lanes import state
from throttler.lanes.state import LaneState
from throttler.limits.limiter import take_one

SCHEDULES = 400  # 4 000 were right, too
SEARCHED = 4000


@pytest.mark.schedules(1)
@pytest.mark.parametrize("start", range(0, SCHEDULES, 50))
def test_every_message_leaves_once_and_in_order(start):
    wrong = {seed: fault for seed in range(start, start + 50) if (fault := faults(run(seed)))}
    assert not wrong


def buffer_from_the_start(self, offset, today):
    drained = self.drained
    day = BUFFER(self, offset, today)
    self.drained = drained if self.backlog == 1 else self.drained  # an aborted attempt's rows come, too
    return day


def buffer_by_the_clock(self, offset, today):
    BUFFER(self, offset, today)
    return today


def log_no_newest_day(customer, record):
    lane = LANE_OF(customer, record)
    lane.newest = lane.day
    return lane


def decide_again(self, part, decoded, now, out):
    part.decided = min(part.decided, decoded.record.offset)
    DECIDE(self, part, decoded, now, out)


def live_beside_a_backlog(self, part, lane, decoded, now, out):
    if lane.backlog and take_one(TERMS.rates, lane.limiter, now):
        out.touch(part, lane)
        lane.seen = decoded.record.offset
        out.live.append(decoded)
    else:
        DECIDE_NEW(self, part, lane, decoded, now, out)


DECIDE, DECIDE_NEW = Decider.decide, Decider._decide_new
BUFFER, LANE_OF = LaneState.buffer, state.lane_of
LEFT_OUT = {
    "what is below decided is skipped": (Decider, "decide", decide_again),
    "drained begins at first - 1": (LaneState, "buffer", buffer_from_the_start),
    "the drain stays below what is stored": (OwnedPartition, "readable_upto", lambda self, lane: lane.seen),
    "with a backlog nothing goes live": (Decider, "_decide_new", live_beside_a_backlog),
    "the committed offset waits for the store": (OwnedPartition, "position", property(lambda self: self.decided)),
    "what waits is stored again": (LaneState, "waits_for", lambda self, offset: False),
    "days of a lane never fall": (LaneState, "buffer", buffer_by_the_clock),
    "the next owner knows the newest day": (state, "lane_of", log_no_newest_day),
}


@pytest.mark.schedules(len(LEFT_OUT) - 1)  # the last one takes thousands
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_found(rule, monkeypatch):
    monkeypatch.setattr(*LEFT_OUT[rule])
    assert any(went_wrong(seed) for seed in range(SEARCHED))


def went_wrong(seed: int) -> bool:
    try:
        return bool(faults(run(seed)))
    except AssertionError:
        return True
