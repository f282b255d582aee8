"""The owner's turns with a producer, a store and pages that answer when a test says so."""

from __future__ import annotations

import json
import queue
from collections import Counter
from types import SimpleNamespace

import pytest

from config.kafka import Replayed
from config.kafka.transaction import Committed, RefusedByGroup, Unknown
from throttler.live.clock import SteadyClock
from throttler.live.decode import decode
from throttler.live.drain import COUNT
from throttler.live.pages import Page
from throttler.live.partition import OwnedPartition
from throttler.messages import gate
from throttler.overflow.store import OverflowRow
from throttler.owner.owner import PartitionOwner, partitions_dropped
from throttler.owner.reflection import Reflection
from throttler.owner.rules import Rules
from throttler.owner.stowing import Stowing
from throttler.owner.terms import KnownTerms
from throttler.repair.repairs import Repairs

TTL = 3_600_000_000
PARTITIONS = 1


class Producer:
    """Keeps what was committed; `fate` is the verdict on the next transaction."""

    usable = True

    def __init__(self):
        self.committed, self.offsets, self.rebuilt = [], {}, 0
        self.fate, self.takes = Committed(), lambda: None

    def rebuild(self):
        self.rebuilt += 1

    def begin(self):
        self.sent = []

    def send(self, topic, partition, key, value, headers):
        self.sent.append((topic, partition, key, value))

    def commit(self, offsets, metadata):
        self.takes()
        verdict, self.fate = self.fate, Committed()
        if verdict == Committed():
            self.committed += self.sent
            self.offsets |= offsets
        return verdict

    def numbers(self):
        return [json.loads(value)["message"]["n"] for topic, *_rest, value in self.committed if topic.endswith("-out")]

    def close(self): ...


class Store:
    """A writer that stores when asked to, and its rows."""

    busy = waiting = False

    def __init__(self):
        self.jobs, self.rows, self.done = [], {}, queue.SimpleQueue()

    def submit(self, batch, number, timeout):
        self.jobs.append((batch, number))

    def store(self):
        for batch, number in self.jobs:
            self.rows |= {(one.row.customer_id, one.offset): one.row for one in batch.records if one.row}
            self.done.put(SimpleNamespace(sequence=number))
        self.jobs = []


class Pages:
    """Questions, answered by `answer` in their order."""

    def __init__(self, store):
        self.store, self.pages, self.asked = store, queue.SimpleQueue(), []

    def ask(self, ranges):
        self.asked += ranges

    def read(self):
        """What the store has now."""
        asked, self.asked = self.asked, []
        return [
            Page(one, count=len(self._rows(one))) if one.limit == COUNT else Page(one, self._rows(one)[: one.limit])
            for one in asked
        ]

    def answer(self, pages=None):
        for page in self.read() if pages is None else pages:
            self.pages.put(page)

    def _rows(self, one) -> list[OverflowRow]:
        found = [self.store.rows[at] for at in sorted(self.store.rows) if at[0] == one.customer_id]
        return [row for row in found if one.drained < row.offset <= one.upto]


class Bench:
    """An owner of partition 0 without its thread; each customer may send 10/s."""

    def __init__(self, settings):
        settings.THROTTLER_DEFAULT_RATE = "10/s"
        self.time = 0
        self.clock = SteadyClock(lambda: self.time * 1000, None)
        self.producer, self.store = Producer(), Store()
        self.pages = Pages(self.store)
        terms = KnownTerms("10/s")
        self.rules = Rules(terms, TTL, PARTITIONS, None)
        handler = SimpleNamespace(refused=queue.SimpleQueue())
        self.owner = PartitionOwner(
            self.producer, self.rules, Stowing(self.store, {}), handler, self.pages,
            Repairs(self.rules.drain, SimpleNamespace(found=queue.SimpleQueue())),
            Reflection(self.rules.drain, terms, "p"), self.clock,
        )  # fmt: skip
        self.gate = gate()
        self.settled = Counter()

    def adopt(self, position=0, decided=0, lanes=None):
        part = OwnedPartition(0, "t", 1, decided, position, position, lanes=lanes or {})
        self.owner.post(self.owner.adopt, part)
        return part

    def arrive(self, offsets, customer="a"):
        batch = [decode(self.record(offset, customer), self.gate, "t") for offset in offsets]
        self.owner.post(self.owner.take, batch, lambda: self.settled.update(["done"]))

    def record(self, offset, customer):
        body = {
            "notification_id": str(offset), "customer_id": customer, "recipient": "ada", "message": {"n": offset},
            "created_at": "2100-01-01T00:00:00Z",
        }  # fmt: skip
        now = self.clock.now() // 1000
        return Replayed("notifications-in", 0, offset, now, customer.encode(), json.dumps(body).encode(), ())

    def turn(self, seconds=0.0):
        self.time += round(seconds * 1e6)
        self.owner.post(lambda: None)  # it waits for nothing
        self.owner._turn()

    def slow(self, seconds):
        """Every transaction takes so long."""

        def take():
            self.time += round(seconds * 1e6)

        self.producer.takes = take

    def run(self, seconds, step=0.1):
        """Everybody answers at once."""
        for _ in range(round(seconds / step)):
            self.store.store()
            self.pages.answer()
            self.turn(step)


@pytest.fixture
def bench(settings):
    return Bench(settings)


def test_rows_are_not_read_before_they_are_stored(bench):
    bench.adopt()
    bench.arrive(range(30))
    bench.turn()
    bench.pages.answer()  # the store is slow
    bench.turn(0.1)
    assert not bench.rules.drain.suspended
    bench.run(5)
    assert bench.producer.numbers() == list(range(30))


def test_what_was_decided_of_a_partition_that_is_given_up_is_not_sent(bench):
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    bench.owner.post(bench.owner.give_up, {0})
    bench.adopt()  # ours again, at the offset that is committed: all while a transaction took its time
    bench.arrive(range(5))
    bench.turn()
    assert bench.producer.numbers() == list(range(5))
    assert bench.settled["done"] == 2


def test_rows_of_a_partition_that_is_given_up_at_once_are_forgotten(bench):
    bench.adopt()
    bench.turn()
    bench.arrive(range(30))
    bench.owner.post(bench.owner.give_up, {0})
    bench.turn()
    assert not bench.store.jobs
    assert bench.producer.numbers() == []


def test_a_page_that_was_asked_for_in_an_earlier_life_is_not_taken(bench):
    bench.adopt()
    bench.arrive(range(40))
    bench.turn()
    bench.store.store()
    for _ in range(5):
        bench.turn(0.05)
    old = bench.pages.read()
    assert old
    part = bench.rules.parts[0]
    lane = part.lanes["a"]
    bench.owner.post(bench.owner.give_up, {0})
    bench.turn()
    # Somebody else has sent all but ten of them meanwhile.
    sent = len(bench.producer.numbers())
    lane.backlog, lane.drained = 10, 29
    bench.adopt(position=40, decided=40, lanes={"a": lane})
    bench.turn()
    bench.pages.answer(old)
    bench.run(5)
    assert bench.producer.numbers()[sent:] == list(range(30, 40))


@pytest.mark.parametrize("fate", [RefusedByGroup("moved on"), Unknown("no answer")])
def test_nothing_of_a_transaction_that_did_not_commit_counts(bench, fate):
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    bench.producer.fate = fate
    bench.turn()
    assert partitions_dropped(bench.owner) == {0}
    assert bench.producer.rebuilt == int(isinstance(fate, Unknown))
    bench.arrive(range(5, 8))  # were read before
    bench.turn()
    assert bench.producer.numbers() == []
    bench.adopt()
    bench.arrive(range(8))
    bench.turn()
    assert bench.producer.numbers() == list(range(8))


def test_a_restore_is_asked_for_behind_the_transaction_in_hand(bench):
    from throttler.owner.placing import RestoredPlacing

    asked = []
    restoring = SimpleNamespace(ask=asked.append, ready=dict, forget=lambda numbers: None)
    placing = RestoredPlacing(
        restoring, "notifications-in", lambda *found: None,
        lambda *gone: bench.owner.post(bench.owner.give_up, *gone), lambda: True, lambda alarms: None,
    )  # fmt: skip
    bench.adopt()
    bench.turn()
    bench.arrive(range(5))
    placing.place(None, {("notifications-in", 0)})
    assert asked == []
    bench.turn()
    assert asked == [{0}]
    assert not bench.rules.parts
    assert bench.producer.numbers() == []


def test_what_left_late_counts_from_when_it_left(bench):
    bench.adopt()
    bench.turn()
    bench.slow(2)
    bench.arrive(range(10))
    bench.turn()
    assert len(bench.producer.numbers()) == 10
    bench.slow(0)
    bench.arrive(range(10, 30))
    bench.turn()
    assert len(bench.producer.numbers()) == 10, "all of the burst left only just now"
    bench.run(1)
    assert 9 <= len(bench.producer.numbers()) - 10 <= 11


def test_a_slow_broker_slows_no_backlog(bench):
    bench.adopt()
    bench.arrive(range(600))
    bench.run(1)
    bench.slow(0.3)
    before, began = len(bench.producer.numbers()), bench.time
    for _ in range(100):
        bench.store.store()
        bench.pages.answer()
        bench.turn(0.01)
    sent = len(bench.producer.numbers()) - before
    assert 0.95 <= sent / ((bench.time - began) / 1e6 * 10) <= 1.1
