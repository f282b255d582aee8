"""A transaction that took long left later than it was decided: who sent counts from then on, nobody else."""

from types import SimpleNamespace

import pytest

from config.kafka.transactional_producer import Committed, RefusedByGroup, Unknown
from tests.throttler.worker.bench import Bench
from throttler.customers.policy_cache import PolicyCache
from throttler.engine.decisions import Decoded, decode
from throttler.engine.partition import OwnedPartition
from throttler.limits.output_rate import SAVED_US, OutputLimiter
from throttler.limits.rate import RateWindow, parse_rates
from throttler.limits.shares import PARTS
from throttler.worker.round import OwnerRound, RoundContext

NOW, LATE = 1_790_000_000_000_000, 300_000
STORE = SimpleNamespace(take=lambda rows, letters, parts: None)


@pytest.fixture
def context():
    """Ten a second and a burst of ten for everybody; one partition."""
    context = RoundContext(PolicyCache(parse_rates("10/s")), 3_600_000_000, 1, None)
    context.parts[0] = OwnedPartition(0, "t", 1, 0, 0, 0)
    return context


def batch(*customers, at=0):
    return [
        Decoded(
            SimpleNamespace(partition=0, offset=at + index, headers=(), topic="in", value=b"{}"),
            SimpleNamespace(customer_id=customer, notification_id="n"), NOW,
        )
        for index, customer in enumerate(customers)
    ]  # fmt: skip


def tats(context):
    return {name: lane.limiter.tat - NOW for name, lane in context.parts[0].lanes.items()}


def test_a_lane_of_which_nothing_left_keeps_its_time(context):
    first, second = OwnerRound(context), OwnerRound(context)
    first.decide(batch("one", "one", "one"), STORE, NOW)
    for part, lane in first.committed(NOW + LATE):
        second.out.touch(part, lane)  # the changelog has to be told, or else they were told again for ever
    second.decide(batch("two", at=3), STORE, NOW)
    assert [lane.customer for _part, lane in second.committed(NOW + LATE)] == ["two"]
    assert tats(context) == {"one": 300_000 + LATE, "two": 100_000 + LATE}


@pytest.mark.parametrize("verdict", [Committed(), RefusedByGroup("moved on"), Unknown("no answer")])
def test_the_rate_of_all_saves_up_nothing_while_what_it_allowed_is_on_its_way(settings, verdict):
    bench = Bench(settings)
    output = OutputLimiter(RateWindow(1000, 1_000_000), SimpleNamespace(at=lambda _now: PARTS), bench.clock.now())
    bench.context.output, bench.context.decider.output = output, bench.context
    bench.adopt()
    bench.turn(1)
    bench.slow(SAVED_US / 1_000_000)
    bench.producer.fate = verdict
    records = [decode(bench.record(offset, f"c{offset}"), bench.gate, "t") for offset in range(150)]
    bench.owner.post(bench.owner.take, records, lambda: None)
    bench.turn(1)
    assert len([one for one in bench.producer.sent if one[0].endswith("-out")]) == 101
    assert output.allowance(bench.clock.now()) == 0
    bench.time += SAVED_US // 2
    assert output.allowance(bench.clock.now()) == 50


def test_the_rate_of_all_is_spent_by_those_who_wait_before_those_who_come(settings):
    bench = Bench(settings)
    budget = [12]
    bench.context.output = SimpleNamespace(
        allowance=lambda _now: budget[0], spend=lambda count: budget.append(budget.pop() - count), settled=lambda _now: None,
        meter=SimpleNamespace(measure=lambda *_: None, sent=lambda _customers: None),
    )  # fmt: skip
    bench.context.decider.output = bench.context
    bench.adopt()
    bench.arrive(range(14))
    bench.run(2)
    assert (bench.producer.numbers(), budget) == (list(range(12)), [0])
    budget[0] = 1
    bench.arrive([14], "b")
    bench.run(1)
    assert (bench.producer.numbers(), budget) == (list(range(13)), [0])
