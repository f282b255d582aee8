"""One owner's view of the record: whom it believes, what it leaves to the others, and when an entry is over."""

import pytest

from throttler.limits.shares import FRESH_US, PARTS, SPENT_US, Divider, Division, ShareEntry

SECOND = 1_000_000
BUSY = ((10**9, 1),)


@pytest.fixture
def divider():
    return Divider("me", "p", 4, 10**6)


def entry(basis, share, *partitions, demand=()):
    return ShareEntry("q", basis, share, partitions, demand)


def record(version, **entries):
    return Division(version, entries)


def mine(divider, found, now, owned=(0, 1)):
    divider.saw(found, now, now)
    return divider.propose(found, owned, BUSY, now).entries["me"].share


def test_an_unknown_owner_keeps_its_grant_or_the_part_of_its_partitions(divider):
    assert mine(divider, record(5, other=entry(4, 900_000, 2, 3)), 0) == 100_000
    assert mine(divider, record(6, other=entry(5, 100_000, 2, 3)), SECOND) == 500_000


def test_who_has_read_what_we_saw_lately_lends_what_it_does_not_need(divider):
    mine(divider, record(5, other=entry(4, 10_000, 2, 3)), 0)
    believed = record(7, other=entry(6, 10_000, 2, 3))
    assert mine(divider, believed, SECOND) == 990_000


def test_an_old_word_lends_nothing(divider):
    mine(divider, record(5, other=entry(4, 10_000, 2, 3)), 0)
    assert mine(divider, record(7, other=entry(6, 10_000, 2, 3)), FRESH_US + 1) == 500_000


def test_a_grant_is_given_up_before_another_has_it(divider):
    mine(divider, record(5, other=entry(4, 800_000, 2, 3, demand=BUSY)), 0)
    assert mine(divider, record(7, other=entry(6, 800_000, 2, 3, demand=BUSY)), SECOND) == 200_000


def test_an_entry_that_does_not_change_is_over_by_our_clock(divider):
    silent = record(5, other=entry(4, 900_000, 2, 3))
    mine(divider, silent, 0)
    assert mine(divider, silent, SPENT_US - 1) == 100_000
    proposed = divider.propose(silent, (0, 1), BUSY, SPENT_US)
    assert proposed.entries.keys() == {"me"}
    assert proposed.entries["me"].share == PARTS // 2, "its partitions are somebody's"


def test_partitions_that_were_taken_over_are_not_kept_for_the_dead(divider):
    silent = record(5, dead=entry(4, 0, 2, 3))
    assert mine(divider, silent, 0, owned=(0, 1, 2, 3)) == PARTS


def test_more_was_granted_than_there_is_for_us(divider):
    assert mine(divider, record(5, a=entry(4, 600_000, 2), b=entry(3, 500_000, 3)), 0) == 0
