"""What becomes of a record: live, buffered, expired, forwarded or a letter; and what comes again."""

from collections import Counter
from types import SimpleNamespace

import pytest

from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.decisions import Decider, Decisions, Decoded
from throttler.engine.partition import OwnedPartition, Unstored
from throttler.limits.rate import parse_rates
from throttler.messages import FORWARDED, day_of
from throttler.overflow.store import OverflowRow

NOW = 1_790_000_000_000_000
TTL = 3_600_000_000


class Desk:
    """One partition, and terms that a test may change."""

    def __init__(self):
        self.terms = CustomerTerms(parse_rates("1/s", 1), None, 1, 0, False)
        self.part = OwnedPartition(3, "t", 1, decided=10, committed=10, read=10)
        self.out, self.right = Decisions(), 3
        self.decider = Decider(lambda _: self.terms, TTL, lambda _: self.right, self.row)

    @staticmethod
    def row(decoded, day):
        return OverflowRow(3, "acme", "t", decoded.record.offset, day, b"", b"", decoded.created_us, 0, "")

    def take(self, offset, created=NOW, expires=0, headers=(), letter=None, now=NOW):
        record = SimpleNamespace(offset=offset, partition=3, headers=headers)
        message = None if letter else SimpleNamespace(customer_id="acme")
        self.decider.decide(self.part, Decoded(record, message, created, expires, letter), now, self.out)

    @property
    def went(self):
        out = self.out
        return [len(found) for found in (out.live, out.rows, out.expired, out.forwarded, out.letters)]


@pytest.fixture
def desk():
    return Desk()


def test_under_the_rate_it_goes_live_and_over_it_waits(desk):
    for offset in (10, 11, 12):
        desk.take(offset)
    lane = desk.part.lanes["acme"]
    assert desk.went == [1, 2, 0, 0, 0]
    assert (lane.first, lane.drained, lane.seen, lane.backlog, lane.waits) == (11, 10, 12, 2, 2)
    assert lane.day == day_of(NOW)
    assert desk.part.totals == {"read": 3, "live": 1, "buffered": 2}
    assert desk.out.changed == [(desk.part, lane)]


def test_behind_a_backlog_nothing_goes_live_although_the_rate_allows_it(desk):
    desk.take(10)
    desk.take(11)
    desk.take(12, now=NOW + 60_000_000)
    assert desk.went == [1, 2, 0, 0, 0]


def test_what_is_held_waits(desk):
    desk.terms = CustomerTerms(desk.terms.rates, None, 1, 0, held=True)
    desk.take(10)
    assert desk.went == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("created", "expires", "ttl", "purge", "reason"),
    [
        (NOW - TTL, 0, None, 0, "ttl"), (NOW - TTL + 1, 0, None, 0, None), (NOW - 2, 0, 1, 0, "ttl"),
        (NOW, NOW, None, 0, "ttl"), (NOW - TTL, NOW + 1, None, 0, None), (NOW - 1, 0, None, NOW, "purged"),
    ],
)  # fmt: skip
def test_what_is_too_old_expires_with_the_reason(desk, created, expires, ttl, purge, reason):
    desk.terms = CustomerTerms(desk.terms.rates, ttl, 1, purge, False)
    desk.take(10, created, expires)
    assert [why for _decoded, why in desk.out.expired] == [reason] * (reason is not None)
    assert desk.part.totals == {"read": 1, "expired_on_arrival" if reason else "live": 1}


def test_what_expires_takes_nothing_of_the_rate(desk):
    desk.take(10, created=NOW - TTL)
    desk.take(11)
    assert desk.went == [1, 0, 1, 0, 0]


def test_behind_a_backlog_only_the_drain_judges_expiry(desk):
    desk.take(10)
    desk.take(11)
    desk.take(12, created=NOW - TTL)
    assert desk.went == [1, 2, 0, 0, 0]


def test_what_another_partition_should_have_is_forwarded_once(desk):
    desk.right = 5
    desk.take(10)
    desk.take(11, headers=[(FORWARDED, b"1/2")])
    assert desk.went == [1, 0, 0, 1, 0]
    assert desk.out.forwarded[0][1] == 5
    assert desk.part.totals == {"read": 2, "forwarded": 1, "live": 1}


def test_what_was_decided_before_is_neither_sent_nor_counted_again(desk):
    for offset in (7, 8):
        desk.take(offset)
    desk.take(9, letter="a letter")
    assert desk.went == [0, 0, 0, 0, 1]  # a letter is buried once, however often it is written
    assert not desk.part.totals.total()


def test_the_offset_to_commit_stays_at_the_oldest_that_the_store_does_not_have(desk):
    part = desk.part
    for offset in (10, 11, 12):
        desk.take(offset)
    assert (part.position, part.stored_upto()) == (13, 12)
    part.unstored.append(Unstored(1, 11, 11, Counter(acme=1)))
    part.unstored.append(Unstored(2, 12, 12, Counter(acme=1)))
    assert (part.position, part.stored_upto(), part.waiting) == (11, 10, 2)
    part.stored(1)
    assert (part.position, part.lanes["acme"].waits, part.waiting) == (12, 1, 1)
    part.stored(1)
    assert (part.position, part.lanes["acme"].waits, part.waiting) == (12, 1, 1)


def test_a_letter_with_a_writer_of_its_own_holds_the_offset_to_commit_and_not_the_drain(desk):
    part = desk.part
    for offset in (10, 11, 12):
        desk.take(offset)
    part.unstored.append(Unstored(1, 12, 12, Counter(acme=1)))
    part.unburied.append(Unstored(1, 11, 11, letters=1))
    assert (part.position, part.stored_upto(), part.waiting) == (11, 11, 2)
    part.stored(1)
    assert (part.position, part.stored_upto(), part.waiting) == (11, 12, 1)
    part.stored(0, 1)
    assert (part.position, part.waiting) == (13, 0)


@pytest.mark.parametrize("room", [True, False])
def test_the_rate_of_all_lets_in_whom_it_has_room_for_and_is_spent(desk, room):
    spent = []
    desk.decider.output = SimpleNamespace(has_room=lambda _now: room, spend=spent.append)
    desk.take(10)
    assert (desk.went, spent) == (([1, 0, 0, 0, 0], [1]) if room else ([0, 1, 0, 0, 0], []))


def test_what_comes_again_is_stored_under_the_newest_day(desk):
    """What came before it may be drained meanwhile, and the lane read from that day on."""
    for offset, day in ((10, 0), (11, 0), (12, 1)):
        desk.take(offset, now=NOW + day * 24 * TTL)
    desk.take(11)
    newest = desk.part.lanes["acme"].newest
    assert [row.day for _decoded, row in desk.out.rows[-2:]] == [newest, newest] != [desk.part.lanes["acme"].day] * 2


def test_a_clock_that_went_back_a_day_puts_no_row_under_an_earlier_day_than_the_one_before(desk):
    for offset, day in ((10, 0), (11, 0), (12, 1), (13, 0)):
        desk.take(offset, now=NOW + day * 24 * TTL)
    first, *later = (row.day for _decoded, row in desk.out.rows)
    assert (first, later) == (day_of(NOW), [day_of(NOW + 24 * TTL)] * 2)


def test_what_went_live_is_not_stored_when_it_comes_again(desk):
    for _ in range(2):
        desk.take(10)
        assert desk.went == [1, 0, 0, 0, 0]


def test_what_may_have_been_a_letter_before_a_reset_is_counted_apart(desk):
    desk.part.decided_before = 11
    for offset in (10, 11):
        desk.take(offset, letter="a letter")
    assert desk.part.totals == {"read": 2, "parked": 2, "parked_again": 1}


def test_the_marks_of_transactions_move_a_partition_forward_only(desk):
    part = desk.part
    part.decided = 14
    for position, moved in ((12, True), (11, False), (15, True)):
        part.touched = False
        part.pass_to(position)
        assert (part.read, part.decided, part.touched) == (max(position, 12), max(position, 14), moved)
