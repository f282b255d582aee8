"""Random schedules of pauses, deaths, lost answers and moved partitions: never more than the whole rate is in use."""

import pytest

from tests.throttler.limits.group import SECOND, World
from throttler.limits.shares import PARTS


@pytest.mark.schedules(4)
@pytest.mark.parametrize("seed", range(30))
def test_the_parts_in_use_never_exceed_the_rate(seed):
    world = World(seed)
    for name in "abc":
        world.start(name)
    for _ in range(400):
        world.step()


@pytest.mark.schedules(2)
@pytest.mark.parametrize("seed", range(5))
def test_in_the_end_nothing_is_left_over_and_demand_divides(seed):
    world = World(seed)
    for name in "abc":
        world.start(name)
    for _ in range(200):
        world.step()
    world.trouble = 0
    for member in world.processes:
        member.stopped_until = member.away_until = member.deaf_until = 0
    last = {member.name: member for member in world.processes if member.alive} or {"a": world.start("a")}
    for number, member in enumerate(last.values(), 1):
        member.output.meter.demand = ((10**9, number),)
    until = world.time + 40 * SECOND
    while world.time < until:
        world.step()
    parts = world.parts()
    assert PARTS - 50 <= sum(parts.values()) <= PARTS
    assert parts.keys() == {member.name for member in world.processes if member.alive}
