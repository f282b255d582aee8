"""Whatever is killed, and whenever somebody looks: what the read model says adds up, while the throttler works."""

import pytest

from config.database.clock import database_now
from config.kafka import topic_name
from tests.throttler.lanes.world import TOPIC_ID, World
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.read_model import LaneSnapshot, PartitionSnapshot, write_read_model
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


class Reported(World):
    """A world whose owner reports some of its transactions."""

    def __init__(self, seed):
        self.process, self.wrong = 0, []
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
        snapshot = PartitionSnapshot(
            0, TOPIC_ID, part.epoch, part.position, part.decided, dict(part.totals), lanes,
            complete=self.complete, process=str(self.process), read=part.read,
        )  # fmt: skip
        assert write_read_model(snapshot, topic_name(GROUP), topic_name(INPUT), database_now())
        self.complete, self.changed = False, {}

    def turn(self, fate):
        super().turn(fate)
        if self.random.random() < 0.5:
            self.look()

    def look(self):
        self.wrong += [(check.name, check.rows) for check in checks(ModelStore(self)) if not check.ok]


def run(seed):
    world = Reported(seed)
    for _ in range(20):
        world.arrive(world.random.choice([0, 1, 3, 8]))
        world.now += world.random.choice([0, 50_000, 600_000, 3_000_000])
        world.store_up = world.random.random() < 0.7
        world.turn(world.random.choice(["committed", "committed", "killed"]))
    return world.wrong


@pytest.mark.parametrize("seed", SEEDS)
def test_the_read_model_adds_up_at_every_moment(seed):
    assert not run(seed)
