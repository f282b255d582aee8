"""Lanes that the store has lost rows of: what is asked for, and what is made of the answers."""

import json
import math
import queue
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from config.kafka import Replayed
from config.kafka.reader import TopicRecreated
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine import repair
from throttler.engine.drain import Drain
from throttler.engine.partition import OwnedPartition, Unstored
from throttler.engine.repair import Repairs, Reread, Rereader, Suspect
from throttler.engine.row_writer import Refusals
from throttler.lanes.state import LaneState
from throttler.limits.rate import parse_rates
from throttler.messages import FORWARDED
from throttler.overflow.store import LaneRange, OverflowRow

NOW = 1_790_000_000_000_000
DAY = datetime(2026, 9, 21, tzinfo=UTC).date()
KEY = (0, "a")


class Workshop:
    """One lane of six messages, four of them in the store, of which it has lost one."""

    def __init__(self):
        self.part = OwnedPartition(0, "t", 1, decided=106, committed=104, read=106)
        self.lane = self.part.lanes["a"] = LaneState("a")
        for offset in range(100, 106):
            self.lane.buffer(offset, DAY)
        self.lane.waits = 2
        self.part.unstored.append(Unstored(1, 104, 105))
        terms = CustomerTerms(parse_rates("10/s"), None, 1, 0, False)
        self.drain = Drain({0: self.part}, lambda _customer: terms, 3_600_000_000)
        self.drain.suspended[KEY] = 3, 4
        self.asked, self.found = [], queue.SimpleQueue()
        self.repairs = Repairs(self.drain, SimpleNamespace(found=self.found, ask=self.asked.extend))


@pytest.fixture
def shop():
    return Workshop()


def test_whoever_slept_asks_for_nothing_before_the_group_has_said_that_the_lane_is_theirs(shop):
    shop.repairs.heard = lambda: -math.inf
    shop.repairs.round(NOW)
    assert shop.asked == []
    shop.repairs.heard = lambda: math.inf
    shop.repairs.round(NOW)
    assert [suspect.key for suspect in shop.asked] == [KEY]


def test_rows_on_their_way_to_the_store_are_not_asked_for(shop):
    shop.repairs.round(NOW)
    (suspect,) = shop.asked
    assert (suspect.lane.drained, suspect.lane.upto, suspect.backlog) == (99, 103, 4)


def test_a_lane_goes_on_with_the_answer_to_its_own_question(shop):
    shop.repairs.round(NOW)
    (suspect,) = shop.asked
    shop.found.put(Reread(replace(suspect.lane), 4))  # asked for before the partition was given up
    assert shop.repairs.round(NOW) == []
    assert (shop.drain.suspended, shop.lane.backlog) == ({KEY: (3, 4)}, 6)
    shop.found.put(Reread(suspect.lane, 1))
    assert shop.repairs.round(NOW) == [(shop.part, shop.lane)]
    assert (shop.drain.suspended, shop.lane.backlog, shop.part.totals["lost"]) == ({}, 5, 1)


def record(offset, forwarded=False, customer="a"):
    body = {
        "notification_id": str(offset), "customer_id": customer, "recipient": "ada", "message": {},
        "created_at": "2100-01-01T00:00:00Z",
    }  # fmt: skip
    headers = [(FORWARDED, b"notifications-in/1/2")] if forwarded else []
    return Replayed("notifications-in", 0, offset, 0, b"a", json.dumps(body).encode(), headers)


@pytest.mark.parametrize("misplaced", [False, True])
def test_only_what_waited_in_the_lane_is_stored_again(monkeypatch, misplaced):
    log = [record(offset, forwarded=offset > 101) for offset in range(99, 106)] + [record(103, customer="b")]
    monkeypatch.setattr(repair, "records_between", lambda *_where: log)
    stored, suspect = [], Suspect(LaneRange(0, "a", "t", 100, 104, DAY, 4), 4, misplaced)
    rereader = Rereader(SimpleNamespace(store=stored.extend))
    try:
        rereader._store_again([suspect])
    finally:
        rereader.close()
    assert [row.offset for row in stored] == [102, 103, 104] if misplaced else [101, 102, 103, 104]


def test_a_row_that_the_store_refuses_leaves_its_lane_once_and_with_its_offset(shop):
    """Before that it would come again: whoever takes over then has it refused once more."""
    refused = queue.SimpleQueue()
    refusals = Refusals(refused)
    for _ in range(2):  # a batch that is run again
        refused.put(OverflowRow(0, "a", "t", 105, DAY, b"", b"", NOW, 0, ""))
    assert refusals.round({0: shop.part}) == []
    shop.part.stored(1)
    assert refusals.round({0: shop.part}) == [(shop.part, shop.lane)]
    shop.lane.leave(105)
    refused.put(OverflowRow(0, "a", "t", 105, DAY, b"", b"", NOW, 0, ""))
    assert refusals.round({0: shop.part}) == []
    assert shop.part.totals["refused"] == 1


def test_a_topic_that_was_created_again_gives_no_rows(monkeypatch):
    class Another:
        tps: list[object] = []
        reading: set[object] = set()

        def __init__(self, topic, spans): ...
        def __enter__(self):
            return self

        def __exit__(self, *_error): ...
        def insist_on(self, topic_id):
            raise TopicRecreated(topic_id)

    monkeypatch.setattr(repair, "Reader", Another)
    with pytest.raises(TopicRecreated, match="t"):
        list(repair.records_between("notifications-in", "t", {0: (100, 104)}))
