"""What becomes of what was restored: adopted, held back until the group confirms it, or counted on from the read model."""

from types import SimpleNamespace

import pytest

from config.kafka.positions import Start, Stopped
from throttler.lanes.read_model import Recalled
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.worker.consumer_backend import RestoredPlacing

TP = ("notifications-in", 0)


class Scene:
    """A placing of one partition; the owner gives up at once, and restores end when a test says so."""

    def __init__(self):
        self.outcomes, self.adopted, self.alarms = {}, [], {}
        self.known, self.ready = Recalled({}), True
        restoring = SimpleNamespace(ask=lambda numbers: None, ready=self._ready, forget=lambda numbers: None)
        self.placing = RestoredPlacing(
            restoring, TP[0], lambda part, forgotten: self.adopted.append(part),
            lambda numbers, then: then(numbers), lambda: self.ready, lambda *asked: self.known, self.alarms,
        )  # fmt: skip
        self.placing.epoch = 7

    def _ready(self):
        outcomes, self.outcomes = self.outcomes, {}
        return outcomes

    def place(self, outcome=None):
        self.placing.place(None, {TP})
        self.outcomes = {0: outcome} if outcome else {}
        return self.placing.place(None, {TP})


@pytest.fixture
def scene():
    return Scene()


def restored(totals=None, **more):
    return RestoredPartition(0, "t", 5, 5, totals or {}, {}, **more)


def test_an_alarm_is_raised_with_its_generation_once_the_group_has_confirmed_it(scene):
    starts = scene.place(RefusedPartition(0, "it was truncated"))
    assert (starts, scene.alarms) == ({TP: Stopped("it was truncated")}, {})
    assert scene.placing.confirmed(starts)
    assert scene.alarms == {0: ("it was truncated", 7)}


def test_an_alarm_goes_with_its_partition(scene):
    scene.placing.confirmed(scene.place(RefusedPartition(0, "it was truncated")))
    scene.placing.forget({0})
    assert scene.alarms == {}


def test_lanes_are_forgotten_once_the_group_has_confirmed_it(scene):
    starts = scene.place(restored(reset="it was truncated"))
    assert (starts, scene.adopted) == ({TP: Start(5, accepts="it was truncated")}, [])
    assert scene.placing.confirmed(starts)
    (part,) = scene.adopted
    assert part.touched, "the next start would be stopped again"


def test_what_waited_is_lost_whatever_the_changelog_still_knows_of_its_lanes(scene):
    totals = {"read": 50, "live": 30, "buffered": 20, "drained": 9, "expired": 2, "lost": 1}
    scene.placing.confirmed(scene.place(restored(totals, reset="created again")))
    assert scene.adopted[0].totals["lost"] == 1 + 8


def test_what_waits_in_restored_lanes_is_not_lost(scene):
    scene.place(restored({"buffered": 20}))
    assert (scene.adopted[0].totals, scene.adopted[0].touched) == ({"buffered": 20}, False)


def test_a_changelog_that_has_lost_the_totals_goes_on_with_those_of_the_read_model(scene):
    scene.known = None
    assert scene.place(restored(uncounted=True)) == {}, "the database was not asked yet"
    scene.known = Recalled({"read": 9, "live": 4, "buffered": 5, "drained": 2}, "t", 9)
    assert scene.placing.place(None, {TP}) == {TP: Start(5)}
    (part,) = scene.adopted
    assert part.totals == {"read": 9, "live": 4, "buffered": 5, "drained": 2, "lost": 3}
    assert (part.touched, part.decided_before) == (True, 9)


def test_positions_of_another_topic_say_nothing_about_this_one(scene):
    scene.known = Recalled({}, "another", 9)
    scene.place(restored(uncounted=True))
    assert scene.adopted[0].decided_before == 0


def test_nothing_is_placed_before_the_rates_of_all_customers_are_known(scene):
    scene.ready = False
    assert (scene.place(restored()), scene.adopted) == ({}, [])
    scene.ready = True
    assert scene.place(restored()) == {TP: Start(5)}


def test_what_was_restored_while_its_partition_went_away_is_not_taken_up(scene):
    """The client's own thread says that it went: between two questions of the polling thread."""

    def ready():
        scene.placing.forget({0})
        return {0: restored()}

    scene.placing.restoring.ready = ready
    assert (scene.placing.place(None, {TP}), scene.adopted) == ({}, [])
