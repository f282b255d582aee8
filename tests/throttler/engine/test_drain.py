"""Backlogs leave at their rate, in order, from pages read ahead; what is too old goes to the expired ones."""

from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.throttler.worker.bench import answer
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine import drain
from throttler.engine.decisions import Decisions
from throttler.engine.drain import COUNT, HELD_US, RETRY_US, Drain, Page
from throttler.engine.partition import OwnedPartition
from throttler.lanes.state import LaneState
from throttler.limits.rate import parse_rates
from throttler.overflow.store import OverflowRow

NOW = 1_790_000_000_000_000
TTL = 3_600_000_000
SECOND = 1_000_000
DAY = datetime(2026, 9, 21, tzinfo=UTC).date()


class Basin:
    """Lanes of one partition, with rows in a store that answers when a test says so."""

    def __init__(self):
        self.now, self.rows, self.asks = NOW, {}, 0
        self.part = OwnedPartition(0, "t", 1, decided=10_000, committed=10_000, read=10_000)
        self.terms = {}
        self.drain = Drain({0: self.part}, self.terms_of, TTL)

    def terms_of(self, customer):
        return self.terms.setdefault(customer, CustomerTerms(parse_rates("10/s", 10), None, 1, 0, False))

    def waits(self, customer, offsets, created=NOW):
        lane = self.part.lanes.setdefault(customer, LaneState(customer))
        for offset in offsets:
            lane.buffer(offset, DAY)
            row = OverflowRow(0, customer, "t", offset, DAY, b"", b"", created, 0, "")
            self.rows[customer, offset] = row
        self.drain.watch(self.part, lane, self.now)
        return lane

    def answer(self):
        for asked in self.drain.wanted():
            found = sorted(
                at for name, at in self.rows if name == asked.customer_id and asked.drained < at <= asked.upto
            )
            self.drain.take(answer(asked, [self.rows[asked.customer_id, at] for at in found]), self.now)

    def turn(self, seconds=0.0, most=1000):
        self.now += round(seconds * SECOND)
        out = Decisions()
        self.drain.round(self.now, most, out)
        self.answer()
        return [row.offset for _part, row in out.drained], [(row.offset, why) for _part, row, why in out.overdue]

    def run(self, seconds, step=0.02):
        sent = []
        for _ in range(round(seconds / step)):
            sent += self.turn(step)[0]
        return sent


@pytest.fixture
def basin():
    return Basin()


def test_a_backlog_leaves_in_order_at_its_rate(basin):
    lane = basin.waits("a", range(100, 400))
    basin.answer()
    sent = basin.run(10)
    assert sent == list(range(100, 100 + len(sent)))
    assert 95 <= len(sent) <= 110  # the burst is 10
    assert (lane.backlog, lane.drained) == (300 - len(sent), sent[-1])
    assert basin.part.totals == {"drained": len(sent)}


def test_what_is_empty_is_looked_at_no_more(basin):
    lane = basin.waits("a", [100, 101])
    basin.answer()
    assert basin.run(1) == [100, 101]
    assert (lane.backlog, lane.drained, lane.day) == (0, 101, None)
    assert basin.drain.schedule.next_due() is None
    assert not basin.drain.pages


def test_a_page_is_asked_for_once_and_before_the_last_one_ends(basin, monkeypatch):
    monkeypatch.setattr(drain, "ROWS", 20)
    monkeypatch.setattr(drain, "AHEAD", 5)
    basin.terms["a"] = CustomerTerms(parse_rates("1000/s", 18), None, 1, 0, False)
    basin.waits("a", range(100, 160))
    (whole,) = basin.drain.wanted()
    assert (whole.drained, whole.upto, whole.limit) == (99, 159, COUNT)
    basin.drain.take(Page(whole, 60), basin.now)
    basin.drain.round(basin.now, 1000, Decisions())
    (first,) = basin.drain.wanted()
    assert (first.drained, first.upto, first.limit) == (99, 159, 20)
    assert not basin.drain.wanted()
    basin.drain.take(answer(first, [basin.rows["a", at] for at in range(100, 120)]), basin.now)
    out = Decisions()
    basin.drain.round(basin.now, 1000, out)
    (second,) = basin.drain.wanted()
    assert (len(out.drained), second.drained) == (18, 119)


def test_what_is_too_old_expires_and_takes_nothing_of_the_rate(basin):
    basin.waits("a", range(100, 150), created=NOW - TTL)
    basin.waits("a", range(150, 155))
    basin.answer()
    sent, overdue = basin.turn()
    assert (sent, overdue) == ([], [(offset, "ttl") for offset in range(100, 150)])
    assert basin.run(0.1) == [150, 151, 152, 153, 154]


def test_what_is_held_stays_but_expires_and_is_purged(basin):
    held = CustomerTerms(parse_rates("10/s", 10), None, 1, 0, held=True)
    basin.terms["a"] = held
    basin.waits("a", [100], created=NOW - TTL + 3 * SECOND)
    basin.waits("a", [101, 102])
    basin.answer()
    assert basin.turn() == ([], [])
    assert basin.turn(4) == ([], [(100, "ttl")])
    basin.terms["a"] = CustomerTerms(held.rates, None, 1, NOW + 1, held=True)
    assert basin.turn(HELD_US / SECOND)[1] == [(101, "purged"), (102, "purged")]


def test_a_page_with_fewer_rows_than_were_stored_suspends_the_lane(basin):
    lane = basin.waits("a", range(100, 110))
    del basin.rows["a", 104]
    basin.answer()
    assert basin.run(2) == []
    assert (basin.drain.suspended, lane.backlog) == ({(0, "a"): (9, 10)}, 10)


def test_a_lane_that_is_suspended_keeps_what_is_in_hand(basin):
    basin.waits("a", range(100, 102))
    basin.answer()
    basin.drain.suspended[0, "a"] = 1, 2
    assert basin.run(1) == []
    basin.drain.suspended.clear()
    assert basin.run(2) == [100, 101]


def test_the_day_of_a_lane_is_that_of_its_oldest_row(basin):
    basin.terms["a"] = CustomerTerms(parse_rates("1/s", 1), None, 1, 0, False)
    lane = basin.waits("a", range(100, 103))
    later = DAY + timedelta(days=1)
    basin.rows["a", 101] = replace(basin.rows["a", 101], day=later)
    basin.answer()
    assert (basin.run(0.1), lane.day) == ([100], later)


def test_a_lane_without_rows_in_hand_does_not_keep_the_owner_busy(basin):
    basin.waits("a", [100])
    assert basin.drain.schedule.next_due() == NOW + RETRY_US


def test_rows_on_their_way_to_the_store_are_not_missed(basin):
    lane = basin.waits("a", range(100, 110))
    basin.drain.wanted()
    basin.drain.forget(0)
    basin.part.read, late = 105, {key: basin.rows.pop(key) for key in list(basin.rows) if key[1] >= 105}
    basin.drain.watch(basin.part, lane, basin.now)
    basin.answer()
    assert basin.run(1) == [100, 101, 102, 103, 104]
    assert not basin.drain.suspended
    basin.rows.update(late)
    basin.part.read = 10_000
    assert basin.run(1) == [105, 106, 107, 108, 109]


def test_a_partition_that_is_given_up_leaves_nothing_behind(basin):
    basin.waits("a", [100])
    (asked,) = basin.drain.wanted()
    basin.drain.forget(0)
    basin.drain.take(answer(asked, [basin.rows["a", 100]]), basin.now)
    assert (basin.drain.schedule.next_due(), basin.drain.pages) == (None, {})


def test_who_waits_much_does_not_delay_who_waits_little(basin):
    fast = CustomerTerms(parse_rates("100000/s", 100000), None, 1, 0, False)
    basin.terms.update(dict.fromkeys("ab", fast))
    basin.waits("a", range(100, 300))
    basin.waits("b", range(300, 310))
    basin.answer()
    sent = basin.turn(most=20)[0]
    assert sum(offset >= 300 for offset in sent) == 10


def test_rows_beyond_what_was_seen_are_never_asked_for(basin):
    """An attempt that was aborted may have left some, of messages that then became something else."""
    lane = basin.waits("a", range(100, 105))
    basin.rows["a", 105] = replace(basin.rows["a", 104], offset=105)
    basin.answer()
    assert (lane.seen, basin.part.stored_upto()) == (104, 9_999)
    assert basin.run(2) == list(range(100, 105))
    assert lane.backlog == 0


def test_a_page_is_taken_for_the_question_it_answers(basin):
    """Not for a later one of the same lane, whose partition was given up and restored in between."""
    basin.waits("a", range(100, 130))
    (old,) = basin.drain.wanted()
    rows = [basin.rows["a", offset] for offset in range(100, 130)]
    basin.drain.forget(0)
    lane = basin.part.lanes["a"]
    lane.backlog, lane.drained = 10, 119
    basin.drain.watch(basin.part, lane, basin.now)
    basin.drain.take(answer(old, rows), basin.now)
    basin.answer()
    assert basin.run(2) == list(range(120, 130))


def test_a_long_lane_is_counted_before_it_goes_on(basin):
    """A backup that is older than the backlog may lack rows in the middle: the page alone would not show it."""
    lane = basin.waits("a", range(1000))
    for lost in range(300, 600):
        del basin.rows["a", lost]
    basin.run(1)
    assert (basin.drain.suspended, lane.backlog) == ({(0, "a"): (700, 1000)}, 1000)


def test_a_long_lane_is_counted_again_after_the_store_was_away(basin):
    lane = basin.waits("a", range(1000))
    sent = basin.run(1)
    assert sent == list(range(len(sent)))
    for lost in range(500, 600):
        del basin.rows["a", lost]
    basin.drain.doubt()
    sent += basin.run(60)
    assert sent == list(range(len(sent)))
    assert lane.backlog > 500


def test_what_comes_again_after_a_start_is_not_missed_yet(basin):
    basin.part.decided, basin.part.read = 300, 250
    lane = basin.waits("a", range(300))
    for late in range(250, 300):
        del basin.rows["a", late]
    basin.run(1)
    assert not basin.drain.suspended
    assert lane.backlog < 300


def test_a_store_that_is_away_is_not_asked_all_the_time(basin):
    basin.waits("a", range(5))
    for _ in range(100):
        for asked in basin.drain.wanted():
            basin.drain.take(Page(asked, None), basin.now)
            basin.asks += 1
        basin.now += RETRY_US
        basin.drain.round(basin.now, 1000, Decisions())
    assert 2 <= basin.asks <= 6
    assert basin.run(1) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("poison", [100, 102])
def test_nothing_behind_a_refused_message_leaves_before_that_is_a_letter(basin, poison):
    lane = basin.waits("a", range(100, 105))
    basin.answer()
    basin.drain.poisoned[0, poison] = "too large"
    assert basin.run(1) == list(range(100, poison))
    row = basin.drain.refused[0, "a"]
    assert row.offset == poison
    assert basin.drain.pass_over((0, "a"), replace(row), basin.now) is None, "the answer to an earlier question"
    assert basin.run(1) == []
    assert basin.drain.pass_over((0, "a"), row, basin.now) == (basin.part, lane)
    assert basin.run(1) == list(range(poison + 1, 105))
    assert basin.part.totals["refused"] == 1


def test_a_lane_that_was_repaired_is_read_again_from_where_it_stands(basin):
    """What was in hand came from a store that had lost the row between."""
    basin.waits("a", range(100, 104))
    (asked,) = basin.drain.wanted()
    basin.drain.pages[0, "a"] = deque(basin.rows["a", at] for at in (100, 102))
    basin.drain.take(Page(asked, 3), basin.now)
    basin.drain.resume((0, "a"), basin.now)
    basin.answer()
    assert basin.run(1) == [100, 101, 102, 103]
