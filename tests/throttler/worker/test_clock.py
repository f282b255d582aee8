"""The owner's time: no step of a clock is a fresh burst or a stop."""

from datetime import UTC, datetime, timedelta

import pytest

from throttler.messages import day_of, microseconds, moment_of
from throttler.worker.owner import LARGEST_STEP, SteadyClock

START = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Host:
    """A monotonic clock that a test moves."""

    def __init__(self):
        self.ns = 5_000_000_000

    def __call__(self):
        return self.ns


@pytest.fixture
def host():
    return Host()


class Clock(SteadyClock):
    """Asks a database that answers at once."""

    def told(self, database):
        return self.measured(database, self.ticks(), self.ticks())


@pytest.fixture
def clock(host):
    return Clock(host, START)


def test_time_runs_with_the_monotonic_clock(clock, host):
    before = clock.now()
    host.ns += 1_500_000
    assert clock.now() - before == 1_500
    assert moment_of(before) == START
    assert day_of(before) == START.date()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_database_that_is_an_hour_off_moves_it_by_little(clock, hours):
    before = clock.now()
    assert clock.told(START + timedelta(hours=hours)) == hours * 3_600_000_000
    assert 0 <= clock.now() - before <= LARGEST_STEP


def test_a_step_back_stops_time_for_a_moment_and_never_turns_it(clock, host):
    before = clock.now()
    clock.told(START - timedelta(milliseconds=20))
    assert clock.now() == before
    host.ns += 30_000_000
    assert clock.now() == before + 10_000


def test_a_small_difference_is_taken_up_at_once(clock):
    clock.told(START + timedelta(milliseconds=3))
    assert clock.now() == microseconds(START) + 3_000


@pytest.mark.parametrize("milliseconds", [-900, -300, 300, 900])
def test_the_time_it_takes_to_ask_is_no_difference(clock, host, milliseconds):
    """The answer may have been made at any moment of a second: only what is beyond that is known."""
    asked, before = clock.ticks(), clock.now()
    host.ns += 1_000_000_000
    clock.measured(START + timedelta(milliseconds=500 + milliseconds), asked, clock.ticks())
    host.ns += 1_000_000_000
    moved = clock.now() - before - 2_000_000
    assert moved == (0 if abs(milliseconds) <= 500 else LARGEST_STEP * (1 if milliseconds > 0 else -1))
