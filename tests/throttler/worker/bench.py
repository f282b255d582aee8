"""An owner without its thread, and a producer, a store and pages that answer when a test says so."""

from __future__ import annotations

import json
import queue
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

from config.kafka import Replayed
from config.kafka.transactional_producer import Committed
from throttler.customers.policy_cache import PolicyCache
from throttler.engine.decisions import decode
from throttler.engine.drain import COUNT, Page
from throttler.engine.partition import OwnedPartition
from throttler.engine.repair import Repairs
from throttler.engine.row_writer import WriteBehind
from throttler.limits.rate import parse_rates
from throttler.messages import gate
from throttler.overflow.store import OverflowRow
from throttler.worker.owner import PartitionOwner, SteadyClock
from throttler.worker.round import RoundContext
from throttler.worker.snapshot import Snapshot

TTL = 3_600_000_000
PARTITIONS = 1


class Producer:
    """Keeps what was committed; `fate` is the verdict on the next transaction."""

    usable = True

    def __init__(self):
        self.committed, self.offsets, self.rebuilt = [], {}, 0
        self.fate, self.takes = Committed(), lambda: None

    def rebuild(self, member):
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


def answer(asked, rows):
    """As the reader of pages says what the store has."""
    page = [] if asked.limit == COUNT else rows[: asked.limit]
    return Page(asked, len(page or rows), page)


class Pages:
    """Questions, answered by `answer` in their order."""

    def __init__(self, store):
        self.store, self.pages, self.asked = store, queue.SimpleQueue(), []

    def ask(self, ranges):
        self.asked += ranges

    def read(self):
        """What the store has now."""
        asked, self.asked = self.asked, []
        return [answer(one, self._rows(one)) for one in asked]

    def answer(self, pages=None):
        for page in self.read() if pages is None else pages:
            self.pages.put(page)

    def _rows(self, one) -> list[OverflowRow]:
        found = [self.store.rows[at] for at in sorted(self.store.rows) if at[0] == one.customer_id]
        return [row for row in found if one.drained < row.offset <= one.upto]


class Bench:
    """An owner of partition 0 without its thread; each customer may send 10/s."""

    def __init__(self, settings, letters=None):
        settings.THROTTLER_DEFAULT_RATE = "10/s"
        self.time = 0
        self.clock = SteadyClock(lambda: self.time * 1000, None)
        self.producer, self.store = Producer(), Store()
        self.pages, self.asked = Pages(self.store), []  # what was to be read again from the input
        policies = PolicyCache(parse_rates("10/s"))
        self.context = RoundContext(policies, TTL, PARTITIONS, None)
        self.handler = handler = SimpleNamespace(refused=queue.SimpleQueue())
        self.owner = PartitionOwner(
            self.producer, self.context, WriteBehind(self.store, letters), handler, self.pages,
            Repairs(self.context.drain, SimpleNamespace(found=queue.SimpleQueue(), ask=self.asked.append)),
            Snapshot(self.context.drain, "p"), self.clock,
        )  # fmt: skip
        self.owner.assigned(None)
        self.gate = gate()
        self.settled = Counter()

    def adopt(self, position=0, decided=0, lanes=None, **known):
        part = OwnedPartition(0, "t", 1, decided, position, position, lanes=lanes or {}, **known)
        self.owner.post(self.owner.adopt, part)
        return part

    def arrive(self, offsets, customer="a"):
        batch = [decode(self.record(offset, customer), self.gate, "t") for offset in offsets]
        self.owner.post(self.owner.take, batch, lambda: self.settled.update(["done"]))

    def arrive_poison(self, offsets):
        records = [replace(self.record(offset, "a"), value=b"{bad") for offset in offsets]
        batch = [decode(record, self.gate, "t") for record in records]
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
        while not self.owner._news.empty():  # on a slow machine one turn does not hear all
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
