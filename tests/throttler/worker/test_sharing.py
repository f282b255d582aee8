"""The record by which owners divide the output rate, in the database: one writer at a time, and what becomes of one who cannot."""

import threading

import pytest
from django.db import connection

from throttler.limits.output_rate import OutputLimiter
from throttler.limits.rate import RateWindow
from throttler.limits.shares import HOLDS_US, PARTS, SPENT_US, Divider, Division, OutputShare, ShareEntry
from throttler.models import OutputDivision
from throttler.worker import database_sync
from throttler.worker.database_sync import Sharing
from throttler.worker.owner import SteadyClock

pytestmark = pytest.mark.django_db(transaction=True)
SECOND = 1_000_000


class Time:
    """A monotonic clock that a test moves."""

    def __init__(self):
        self.us = 1000 * SECOND

    def __call__(self):
        return self.us * 1000

    def pass_seconds(self, seconds):
        self.us += int(seconds * SECOND)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def owner(time):
    def make(name, numbers=(), generation=1):
        clock = SteadyClock(time)
        output = OutputLimiter(RateWindow(1000, SECOND), OutputShare(4, 5 * SECOND), clock.now())
        sharing = Sharing(name, output, clock)
        if numbers:
            sharing.group.assigned(set(numbers), generation)
            sharing.group.heard = lambda: time.us / SECOND
        return sharing

    return make


def part(sharing):
    return sharing.share.at(sharing.clock.reading())


def test_one_owner_has_all_of_what_is_its_own(owner):
    one = owner("one", {0, 1, 2})
    one.meter.demand = ((1500, 2), (9000, 1))
    one.round()
    assert part(one) == 3 * PARTS // 4
    found = database_sync.read_division()
    assert (found.version, found.entries["one"].partitions) == (1, (0, 1, 2))
    assert found.entries["one"].demand == one.meter.demand


def test_only_who_has_read_the_version_before_writes(db):
    first = Division(1, {"one": ShareEntry("p", 0, 5, (0,))})
    assert database_sync.write_division(first)
    assert not database_sync.write_division(Division(1, {"two": ShareEntry("q", 0, 6, (1,))}))
    assert not database_sync.write_division(Division(3, {"two": ShareEntry("q", 2, 6, (1,))}))
    assert database_sync.write_division(Division(2, {"two": ShareEntry("q", 1, 6, (1,))}))
    assert OutputDivision.objects.get().version == 2
    assert database_sync.read_division().entries.keys() == {"two"}


def test_of_two_who_write_at_once_one_is_told(db):
    barrier, wrote = threading.Barrier(2), []

    def write(name, version):
        try:
            barrier.wait(10)
            wrote.append(
                database_sync.write_division(Division(version, {name: ShareEntry(name, version - 1, 1, (0,))}))
            )
        finally:
            connection.close()

    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time by itself")
    for version in (1, 2):
        threads = [threading.Thread(target=write, args=(name, version)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(wrote[-2:]) == [False, True]


def test_a_lost_race_is_run_again(owner):
    one, two = owner("one", {0, 1}), owner("two", {2, 3})
    write = one.write

    def late(proposed):
        one.write = write
        two.round()
        return write(proposed)

    one.write = late
    one.round()
    assert database_sync.read_division().version == 2
    assert database_sync.read_division().entries.keys() == {"one", "two"}
    assert part(one) + part(two) <= PARTS


def test_a_part_is_held_from_when_the_record_was_asked_for(owner, time):
    """The others count on it that long: a database that takes two seconds to answer makes it no longer."""
    one, two = owner("one", {0, 1}), owner("two", {2, 3})
    two.round()
    write = one.write

    def slowly(proposed):
        time.pass_seconds(2)
        return write(proposed)

    one.write = slowly
    one.round()
    assert part(one)
    time.pass_seconds(HOLDS_US / SECOND - 2)
    assert not part(one)


def test_who_has_nothing_or_was_not_heard_of_says_nothing(owner, time):
    nobody, silent = owner("nobody"), owner("silent", {0, 1})
    nobody.round()
    silent.group.heard = lambda: float("-inf")
    time.pass_seconds(6)
    silent.round()
    assert database_sync.read_division() == Division()


def test_who_leaves_leaves_its_part(owner, time):
    one, two = owner("one", {0, 1}), owner("two", {2, 3})
    one.round()
    two.round()
    one.leave()
    assert database_sync.read_division().entries.keys() == {"two"}
    two.leave()
    one.leave()
    assert database_sync.read_division().entries == {}


def test_a_name_that_another_process_has_is_left_alone(owner, time):
    first, second = owner("one", {0, 1}), owner("one", {0, 1})
    first.round()
    second.round()
    first.round()
    assert database_sync.read_division().entries["one"].process == second.divider.process
    first.leave()
    assert database_sync.read_division().entries.keys() == {"one"}


def test_a_record_of_before_grants_nothing_until_all_of_after_has_ended():
    one = Divider("one", "p", 4, 10**6)
    old = Division(3, {"two": ShareEntry("q", 2, 10, (2, 3))})
    one.saw(Division(9, old.entries), 0, 0)
    one.saw(old, SECOND, SECOND)
    assert one.propose(old, {0, 1}, (), SECOND + SPENT_US - 1) is None
    one.saw(old, SECOND + SPENT_US, SECOND + SPENT_US)
    assert one.propose(old, {0, 1}, (), SECOND + SPENT_US)
