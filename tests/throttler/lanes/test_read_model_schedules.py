"""Whatever is killed, and whenever somebody looks: what the mirror says adds up, while the throttler works."""

from dataclasses import replace

import pytest
from django.db import connection

from config.database.clock import database_now
from config.kafka import topic_name
from outbox.bookkeeping.models import FlowCounter, Watermark
from tests.throttler.lanes.world import TOPIC_ID, World
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.read_model import LaneSnapshot, PartitionSnapshot, write_read_model
from throttler.models import Lane, LanePartition
from throttler.overflow.django import DjangoStore
from throttler.verify import checks

pytestmark = pytest.mark.django_db
SEEDS = [*range(19), 80]  # 600 were right, too


class ModelStore(DjangoStore):
    """The world's rows."""

    def __init__(self, world):
        self.world = world

    def counts(self, lanes):
        return [len(set(self._offsets(lane))) for lane in lanes]

    def _offsets(self, lane):
        for name, offset, day in self.world.rows:
            if name == lane.customer_id and lane.drained < offset <= lane.upto and day >= lane.day:
                yield offset


class Mirrored(World):
    """A world whose owner mirrors some of its transactions; `change` leaves something out of what it tells."""

    def __init__(self, seed, change=lambda told: told):
        self.process, self.change, self.wrong = 0, change, []
        super().__init__(seed)

    def start(self):
        super().start()
        self.process += 1
        self.complete, self.changed = True, {}

    def commit(self, out, sent, gone):
        super().commit(out, sent, gone)
        waiting = [lane for lane in self.part.backlogged() if lane.waits]
        # The lanes themselves: one that is empty may be forgotten before it is told.
        self.changed |= {lane.customer: lane for lane in [*waiting, *(lane for _part, lane in out.changed)]}
        if self.random.random() < 0.6:
            self.tell()

    def tell(self):
        part = self.part
        changed = part.backlogged() if self.complete else self.changed.values()
        lanes = [LaneSnapshot.of(lane, None) for lane in changed]
        told = PartitionSnapshot(
            0, TOPIC_ID, part.epoch, part.position, part.decided, dict(part.totals), lanes,
            complete=self.complete, process=str(self.process), read=part.read,
        )  # fmt: skip
        assert write_read_model(self.change(told), topic_name(GROUP), topic_name(INPUT), database_now())
        self.complete, self.changed = False, {}

    def turn(self, fate):
        super().turn(fate)
        if self.random.random() < 0.5:
            self.look()

    def look(self):
        self.wrong += [(check.name, check.rows) for check in checks(ModelStore(self)) if not check.ok]


def run(seed, change=lambda told: told):
    world = Mirrored(seed, change)
    for _ in range(20):
        world.arrive(world.random.choice([0, 1, 3, 8]))
        world.now += world.random.choice([0, 50_000, 600_000, 3_000_000])
        world.store_up = world.random.random() < 0.7
        world.turn(world.random.choice(["committed", "committed", "killed"]))
    return world.wrong


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mirror_adds_up_at_every_moment(seed):
    assert not run(seed)


LEFT_OUT = {
    "what was drained unseen waits no more": lambda told: replace(told, complete=False, process=""),
    "rows on their way are told": lambda told: replace(told, lanes=[replace(lane, waits=0) for lane in told.lanes]),
    "a new owner says how far it has read": lambda told: replace(told, read=None),
    "a lane that is empty is told": lambda told: replace(told, lanes=[lane for lane in told.lanes if lane.backlog]),
    "every lane that changed is told": lambda told: replace(told, lanes=told.lanes[:1]),
}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="some hundred schedules, in which the database has no part")
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_what_an_owner_does_not_tell_is_found(rule):
    assert any(found_wrong(seed, LEFT_OUT[rule]) for seed in range(200))


def found_wrong(seed, change):
    for model in (FlowCounter, Watermark, Lane, LanePartition):
        model.objects.all().delete()
    return bool(run(seed, change))
