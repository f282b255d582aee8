"""Three processes under one output rate, in a time of the test's own: what leaves in any span, whatever a transaction takes."""

import random
from collections import deque

import pytest

from tests.throttler.limits.group import Part
from throttler.limits.output_rate import SAVED_US, LastSecond, OutputLimiter
from throttler.limits.rate import RateWindow, parse_rates
from throttler.limits.shares import PARTS

SECOND, STEP = 1_000_000, 2_000
LIMIT = 1000  # messages a second
SAVED = LIMIT * SAVED_US // SECOND
PROCESSES = 3


class Process:
    """Collects what it may send for some time, then runs a transaction; now and then nobody wants to send."""

    def __init__(self, group, share):
        self.group, self.part = group, Part(share)
        self.output = OutputLimiter(RateWindow(LIMIT, SECOND), self.part, 0)
        self.in_hand = self.collecting_until = self.busy_until = 0

    def turn(self, now):
        if now < self.busy_until:
            return
        if now <= self.collecting_until:
            self.collect(now)
            return
        if self.in_hand:
            self.group.left.append((now, self.in_hand))
        self.output.settled(now)
        self.in_hand = 0
        self.busy_until = now + self.group.pause()
        self.collecting_until = self.busy_until + self.group.collected()

    def collect(self, now):
        count = self.output.allowance(now)
        self.output.spend(count)
        self.in_hand += count
        if count:
            self.group.decided.append((now, count))
        if now + STEP > self.collecting_until:
            self.busy_until = now + self.group.duration()


class Group:
    def __init__(self, seed, shares, longest=300_000):
        self.random, self.longest = random.Random(seed), longest
        self.decided, self.left = [], []
        self.processes = [Process(self, share) for share in shares]

    def duration(self):
        return self.random.choice((STEP, 10_000, 20_000, self.random.randrange(STEP, self.longest)))

    def collected(self):
        return self.random.choice((STEP, STEP, 10_000, 50_000))

    def pause(self):
        return 0 if self.random.random() < 0.98 else self.random.randrange(STEP, SECOND)

    def run(self, seconds, happens=lambda _now: None):
        for now in range(0, seconds * SECOND, STEP):
            happens(now)
            for process in self.random.sample(self.processes, PROCESSES):
                process.turn(now)


class Moves:
    """Each second a part goes from one to another: the one has less at once, the other has more some time later."""

    def __init__(self, group):
        self.group, self.raised = group, []

    def __call__(self, now):
        random, processes = self.group.random, self.group.processes
        for at, process, share in [one for one in self.raised if one[0] <= now]:
            self.raised.remove((at, process, share))
            process.part.share += share
        if now % SECOND == 0:
            giver, taker = random.sample(processes, 2)
            moved = random.choice((giver.part.share, random.randrange(giver.part.share + 1)))
            giver.part.share -= moved
            self.raised.append((now + random.randrange(STEP, 300_000), taker, moved))


def most_above(events):
    """Messages above limit * span in the worst span, its ends included."""
    worst = least = sent = 0
    for at, count in sorted(events):
        least = min(least, sent - LIMIT * at / SECOND)
        sent += count
        worst = max(worst, sent - LIMIT * at / SECOND - least)
    return worst


def most_in_a_period(events, period=SECOND):
    """Messages of the period that has most."""
    within, most, number = deque(), 0, 0
    for at, count in sorted(events):
        within.append((at, count))
        number += count
        while within[0][0] <= at - period:
            number -= within.popleft()[1]
        most = max(most, number)
    return most


SHARES = [(PARTS, 0, 0), (600_000, 300_000, 100_000), (333_333, 333_333, 333_334)]


@pytest.mark.schedules(6)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shares", SHARES)
def test_no_second_carries_more_than_the_limit_by_decisions_and_by_commits(shares, seed):
    group = Group(seed, shares)
    group.run(20)
    for events in (group.decided, group.left):
        assert most_in_a_period(events) <= LIMIT
        assert most_above(events) <= SAVED + PROCESSES, "of any span"


@pytest.mark.schedules(3)
@pytest.mark.parametrize("seed", range(10))
def test_nor_with_parts_that_move_but_for_what_a_transaction_carries(seed):
    group = Group(seed, (600_000, 300_000, 100_000))
    group.run(40, Moves(group))
    assert most_in_a_period(group.decided) <= LIMIT + SAVED + PROCESSES
    assert most_in_a_period(group.left) <= LIMIT + 2 * SAVED + PROCESSES
    assert most_above(group.decided) <= SAVED + PROCESSES
    assert most_above(group.left) <= 2 * SAVED + PROCESSES


def greedy(output, begin, end, settles=True):
    """Sends what it may from `begin` to `end`."""
    left = []
    for now in range(begin, end, STEP):
        left.append((now, output.allowance(now)))
        output.spend(left[-1][1])
        if settles:
            output.settled(now)
    return left


def test_what_was_saved_up_is_part_of_the_limit():
    output = OutputLimiter(RateWindow(LIMIT, SECOND), Part(PARTS), 0)
    output.allowance(0)
    assert output.allowance(SECOND) == SAVED + 1
    assert most_in_a_period(greedy(output, SECOND, 4 * SECOND)) == LIMIT


def test_a_message_counts_from_when_its_transaction_ends():
    output = OutputLimiter(RateWindow(LIMIT, SECOND), Part(PARTS), 0)
    output.allowance(0)
    output.allowance(SECOND)
    output.spend(SAVED)
    late = SECOND + 900_000
    output.settled(late)
    assert most_in_a_period([(late, SAVED), *greedy(output, late, 4 * SECOND)]) == LIMIT


def test_what_is_in_hand_counts_beside_what_has_left():
    output = OutputLimiter(RateWindow(LIMIT, SECOND), Part(PARTS), 0)
    output.allowance(0)
    left = greedy(output, SECOND, SECOND + 850_000)
    in_hand = sum(count for _at, count in greedy(output, SECOND + 850_000, SECOND + 950_000, settles=False))
    assert in_hand > 0
    assert most_in_a_period([*left, (SECOND + 950_000, in_hand)]) == LIMIT


def test_parts_of_several_processes_leave_a_hundredth_and_a_small_part_is_one_message():
    parts = [OutputLimiter(RateWindow(LIMIT, SECOND), Part(share), 0) for share in (333_999, 665_999, 2, 0)]
    assert [most_in_a_period(greedy(one, 0, 3 * SECOND)) for one in parts] == [330, 659, 0, 0]
    small = OutputLimiter(RateWindow(1, SECOND), Part(PARTS // 2), 0)
    assert sum(count for _at, count in greedy(small, 0, 4 * SECOND)) == 1


@pytest.mark.parametrize("text", ["1/s", "7/s", "90/min", "6000/min", "1000/hour"])
def test_a_rate_of_any_unit_is_kept_in_each_period_and_used(text):
    (window,) = parse_rates(text).windows
    period = window.period_us
    output, left = OutputLimiter(window, Part(PARTS), 0), []
    output.allowance(0)
    for now in range(period, 3 * period, SAVED_US // 2):
        left.append((now, output.allowance(now)))
        output.spend(left[-1][1])
        output.settled(now)
    assert 0.97 * window.limit <= most_in_a_period(left, period) <= window.limit
    assert sum(count for _at, count in left) >= 0.95 * 2 * window.limit - 1


def test_a_part_that_gets_smaller_does_not_pay_for_a_day_in_which_it_was_larger():
    hour = 3600 * SECOND
    output = OutputLimiter(RateWindow(86_400, 24 * hour), Part(PARTS), 0)
    for now in range(0, hour, SAVED_US // 2):
        output.spend(output.allowance(now))
        output.settled(now)
    output.share.share = PARTS // 2
    later = []
    for now in range(hour, hour + 60 * SECOND, SAVED_US // 2):
        later.append(output.allowance(now))
        output.spend(later[-1])
        output.settled(now)
    assert sum(later) in (29, 30)


def test_a_busy_second_is_remembered_in_a_thousand_pieces():
    sent = LastSecond()
    for now in range(0, SECOND, 100):
        sent.add(2, now)
    assert (len(sent._over), sent.count(SECOND - 1)) == (1001, 20_000)
    assert (sent.count(SECOND + SECOND // 2), sent.count(2 * SECOND)) == (9998, 0)


def test_a_part_that_moves_leaves_and_brings_nothing_that_was_saved_up():
    giver, taker = Process(None, PARTS), Process(None, 0)
    assert (giver.output.allowance(1000), giver.output.allowance(SECOND)) == (0, SAVED + 1)
    giver.part.share, taker.part.share = 0, PARTS
    assert (giver.output.allowance(SECOND), taker.output.allowance(SECOND)) == (0, 0)


def test_transactions_of_40_ms_leave_a_twentieth_of_the_limit():
    group = Group(1, (600_000, 300_000, 100_000), longest=100_000)
    group.duration, group.pause, group.collected = lambda: 40_000, lambda: 0, lambda: STEP
    group.run(20)
    assert sum(count for _at, count in group.left) >= 0.93 * 20 * LIMIT
