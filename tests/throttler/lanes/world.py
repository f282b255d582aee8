"""A log, a store and a changelog with a throttler that is killed: the real rules of lanes under random schedules."""

from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace

from tests.throttler.worker.bench import answer
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.decisions import Decider, Decisions, Decoded
from throttler.engine.drain import Drain, Page
from throttler.engine.partition import OwnedPartition, Unstored
from throttler.lanes import state
from throttler.limits.limiter import recovered
from throttler.limits.rate import parse_rates
from throttler.overflow.store import OverflowRow, each_offset_once

RATES = parse_rates("2/s", 2)
TERMS = CustomerTerms(RATES, None, 1, 0, False)
TOPIC_ID = "t"
DAY_US = 86_400_000_000


def row_of(decided, day):
    record, message = decided.record, decided.message
    return OverflowRow(0, message.customer_id, TOPIC_ID, record.offset, day, b"", b"", decided.created_us, 0, "")


class World:
    """One partition. `output` and `log` are what committed transactions left; `rows` is the store, orphans included."""

    def __init__(self, seed: int, customers: str = "ab") -> None:
        self.random, self.now = Random(seed), 1_000 * DAY_US  # midnight
        self.customers, self.inputs = customers, []
        self.output, self.log, self.rows = [], {}, {}
        self.committed, self.store_up = 0, True
        self.decider = Decider(lambda _customer: TERMS, DAY_US, lambda _customer: 0, row_of)
        self.start()

    def start(self) -> None:
        """A process begins: what it knows comes from the changelog, and it reads from the committed offset."""
        found = self.log.get(state.PARTITION_KEY)
        known = state.partition_from(found) if found else state.PartitionRecord(TOPIC_ID, 0, 0, {})
        assert known.position == self.committed
        self.part = OwnedPartition(
            0, TOPIC_ID, 1, known.decided, self.committed, self.committed, totals=Counter(known.totals)
        )
        for key, value in self.log.items():
            if key != state.PARTITION_KEY:
                self.part.lanes[key.decode()] = state.lane_of(key.decode(), state.lane_record_from(value))
        self.read, self.jobs, self.waiting, self.asked = self.committed, 0, [], []
        self.drainer = Drain({0: self.part}, lambda _customer: TERMS, DAY_US)

    def arrive(self, count: int) -> None:
        self.inputs += [self.random.choice(self.customers) for _ in range(count)]

    def decided(self, offset: int) -> Decoded:
        message = SimpleNamespace(customer_id=self.inputs[offset])
        return Decoded(SimpleNamespace(offset=offset, partition=0, headers=()), message, self.now)

    def turn(self, fate: str) -> None:
        """One round of the owner: decide, drain, forget, one transaction. `fate`: committed, or killed before it."""
        out, part = Decisions(), self.part
        end = min(len(self.inputs), self.read + self.random.choice([0, 0, 1, 2, 6]))
        for offset in range(self.read, end):
            self.decider.decide(part, self.decided(offset), self.now, out)
        self.read = end
        self.hand_over(out)
        sent = [decided.record.offset for decided in out.live] + self.drain(out)
        gone = self.forget()
        if self.random.random() < 0.5:
            self.store()  # at any moment: before the transaction is decided, too
        if fate == "committed":
            self.commit(out, sent, gone)
        else:
            self.start()

    def hand_over(self, out: Decisions) -> None:
        if rows := [row for _decided, row in out.rows]:
            self.jobs += 1
            lanes = Counter(row.customer_id for row in rows)
            self.part.unstored.append(Unstored(self.jobs, rows[0].offset, rows[-1].offset, lanes))
            self.waiting.append((self.jobs, rows))

    def store(self) -> None:
        if self.store_up and self.waiting:
            number, rows = self.waiting.pop(0)
            self.rows.update({(row.customer_id, row.offset, row.day): row for row in rows})
            self.part.stored(number)

    def drain(self, out: Decisions) -> list[int]:
        """What the real drain gives; pages come at once, or some turns later."""
        for lane in self.part.backlogged():
            self.drainer.watch(self.part, lane, self.now)
        self.drainer.round(self.now, self.random.choice([1, 3, 100]), out)
        self.asked += self.drainer.wanted()
        while self.asked and self.random.random() < 0.7:
            self.answer(self.asked.pop(0))
        return [row.offset for _part, row in out.drained]

    def answer(self, asked) -> None:
        found = (self.rows[at] for at in sorted(self.rows) if at[0] == asked.customer_id and at[2] >= asked.day)
        rows = [row for row in each_offset_once(found) if asked.drained < row.offset <= asked.upto]
        lane = self.part.lanes.get(asked.customer_id)
        assert not lane or not lane.backlog or len(rows) <= lane.backlog, "an aborted attempt's rows are among them"
        self.drainer.take(answer(asked, rows) if self.store_up else Page(asked, None), self.now)
        assert not self.drainer.suspended, "rows were missed that nobody lost"

    def forget(self) -> list[str]:
        lanes = self.part.lanes
        idle = [name for name, lane in lanes.items() if not lane.backlog and recovered(lane.limiter, self.now)]
        for name in idle:
            del lanes[name]
        return idle

    def commit(self, out: Decisions, sent: list[int], gone: list[str]) -> None:
        part = self.part
        self.output += sent
        for _part, lane in out.changed:
            lane.changed = False
            self.log[lane.customer.encode()] = state.lane_bytes(lane, 1, TOPIC_ID)
        for name in gone:
            self.log.pop(name.encode(), None)
        self.log[state.PARTITION_KEY] = state.partition_bytes(part.record())
        self.committed = part.committed = part.position

    def settle(self) -> None:
        """The store is back and nothing is killed any more: everything that came has to leave."""
        self.store_up = True
        for _ in range(20 * len(self.inputs) + 50):
            self.now += 500_000
            self.turn("committed")
            self.store()


def run(seed: int) -> World:
    """A random schedule around midnight: traffic, time, store outages, kills, another clock; then everything settles."""
    world = World(seed)
    for _ in range(world.random.randint(5, 25)):
        world.arrive(world.random.choice([0, 1, 3, 8]))
        world.now += world.random.choice([0, 50_000, 600_000, 3_000_000])
        world.store_up = world.random.random() < 0.7
        fate = world.random.choice(["committed", "committed", "killed"])
        world.turn(fate)
        if fate == "killed":  # the next owner begins with the time that the database has then
            world.now += world.random.choice([0, 0, -6_000_000, 6_000_000])
    world.settle()
    return world


def faults(world: World) -> str:
    """What went wrong, or ""."""
    for customer in world.customers:
        wanted = [offset for offset, name in enumerate(world.inputs) if name == customer]
        found = [offset for offset in world.output if world.inputs[offset] == customer]
        if found != wanted:
            return f"{customer}: {found} instead of {wanted}"
    totals = world.part.totals
    if totals["live"] + totals["buffered"] != len(world.inputs) or (totals["buffered"] and world.part.waiting):
        return f"counted {dict(totals)} of {len(world.inputs)}"
    return ""
