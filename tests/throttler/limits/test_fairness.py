"""Three owners with unequal customers under one rate, in a time of the test's own: who gets how much of it."""

import pytest

from tests.throttler.limits.group import Part
from throttler.limits.output_rate import OutputLimiter
from throttler.limits.rate import RateWindow
from throttler.limits.scheduler import Scheduler
from throttler.limits.shares import PARTS, fair_share

SECOND, TURN = 1_000_000, 25_000
LIMIT, FAST, SLOW = 1000, 100, 1  # messages a second
CUSTOMERS = 300


class Owner:
    """Customers who never run out of messages, each at its own rate."""

    def __init__(self, rates):
        self.part, self.schedule, self.rates = Part(), Scheduler(), rates
        self.output = OutputLimiter(RateWindow(LIMIT, SECOND), self.part, 0)
        self.served, self.ready = dict.fromkeys(rates, 0), dict.fromkeys(rates, 0)
        for name in rates:
            self.schedule.add(name, 0)

    def turn(self, now):
        shares = self.schedule.due(now, self.output.allowance(now), lambda name: self.wanted(name, now))
        for name, count in shares.items():
            self.served[name] += count
            self.ready[name] = max(self.ready[name], now - SECOND) + count * SECOND // self.rates[name]
            if name not in self.schedule:
                self.schedule.add(name, max(self.ready[name], now))
        self.output.spend(sum(shares.values()))
        self.output.settled(now)
        self.output.meter.sent(name for name, count in shares.items() for _ in range(count))
        schedule, meter = self.schedule, self.output.meter
        meter.measure(now, schedule.waiting(), schedule.due_count, self.achievable_rate, lambda _name: 1)

    def wanted(self, name, now):
        return max(0, now - self.ready[name]) * self.rates[name] // SECOND + 1

    def achievable_rate(self, name):
        return name, self.rates[name] * 1000, 1


def rates(names):
    return {name: SLOW if name % 6 == 0 else FAST for name in names}


def index_of(found):
    return sum(found) ** 2 / (len(found) * sum(one * one for one in found))


@pytest.mark.parametrize(
    ("parts", "least"), [([range(300)], 0.99), ([range(180), range(180, 270), range(270, 300)], 0.95),
                         ([range(1), range(1, 2), range(2, 300)], 0.95)]
)  # fmt: skip
def test_all_customers_are_served_alike_wherever_they_are(parts, least):
    owners = [Owner(rates(names)) for names in parts]
    for second in range(25):
        claims = {str(number): (4, owner.output.meter.demand) for number, owner in enumerate(owners)}
        for number, owner in enumerate(owners):
            owner.part.share = fair_share(PARTS, LIMIT * 1000, claims, str(number))
        if second == 5:
            before = {name: count for owner in owners for name, count in owner.served.items()}
        for now in range(second * SECOND, (second + 1) * SECOND, TURN):
            for owner in owners:
                owner.turn(now)
    served = {name: count - before[name] for owner in owners for name, count in owner.served.items()}
    slow = sum(name % 6 == 0 for name in served)
    level = (LIMIT - slow * SLOW) / (CUSTOMERS - slow)
    allowed = {name: 20 * (SLOW if name % 6 == 0 else level) for name in served}
    assert index_of([served[name] / allowed[name] for name in served]) > least
    assert 0.97 * 20 * LIMIT <= sum(served.values()) <= 20 * LIMIT + 100
