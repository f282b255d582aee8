"""Throttlers that sleep past the end of their session and of their transaction, and wake up beside their heirs."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from tests.crash.platform import Worker
from tests.crash.wire import wait_for
from tests.processes.throttler.throttlers import Throttlers
from tests.processes.throttler.witness import Witness, assert_changelog_moves_forward
from throttler.lanes.models import LaneOwner

pytestmark = pytest.mark.kafka
on_one_database = pytest.mark.skipif(
    connection.vendor == "sqlite", reason="two minutes beside a server, which has no part in it"
)
POINTS = [
    "decided", "overflow stored", "records sent", "offsets sent", "commit sent", "transaction committed",
    "partition restored", "mirror given",
]  # fmt: skip
FIRST, EACH = 8, 3  # messages of each customer: at first, and with each zombie; some are above the rate
SLEEP = 12  # seconds: longer than a session (6) and than a transaction (10)


def frozen_at_each_point(throttlers: Throttlers, name: str = "") -> list[Worker]:
    """Each has taken over from the one before, and was frozen in its turn."""
    zombies = []
    for number, point in enumerate(POINTS):
        throttlers.send(EACH if number else FIRST)
        zombie = throttlers.sabotaged(point, "freeze", name)
        wait_for(lambda zombie=zombie: zombie.frozen, 60, f"the throttler to freeze at {point!r}")
        zombies.append(zombie)
    return zombies


@on_one_database
def test_zombies_wake_up_beside_their_heir_and_change_nothing(throttlers: Throttlers) -> None:
    zombies = frozen_at_each_point(throttlers)
    heir = throttlers.start()
    throttlers.assert_all_left_once()  # behind the end of the last one's session and of its transaction
    witness = Witness(throttlers.wire)
    witness.start()
    for zombie in zombies:
        zombie.thaw()
    throttlers.wait_for_members(len(zombies) + 1)
    throttlers.send(EACH)
    throttlers.assert_all_left_once()
    witness.finish()
    assert heir.count("throttler_transactions_total", outcome="unknown") == 0
    assert {worker.stop() for worker in throttlers.platform.workers} == {0}
    throttlers.assert_all_left_once()
    assert_changelog_moves_forward(throttlers.wire)


@on_one_database
def test_zombies_of_one_name_end_and_leave_the_name_to_its_owner(throttlers: Throttlers) -> None:
    zombies = frozen_at_each_point(throttlers, "a")
    began = time.monotonic()
    owner = throttlers.start("a")
    throttlers.assert_all_left_once()
    time.sleep(max(0.0, began + SLEEP - time.monotonic()))
    before = LaneOwner.objects.get().updated_at
    wait_for(lambda: LaneOwner.objects.get().updated_at > before, 30, "the owner to report")
    reported = LaneOwner.objects.values("process", "starts").get()
    witness = Witness(throttlers.wire)
    witness.start()
    for zombie in zombies:
        zombie.thaw()
    for point, zombie in zip(POINTS, zombies, strict=True):
        assert zombie.end(30) == 1, point
        assert "another process" in zombie.text, point
    throttlers.send(EACH)
    throttlers.assert_all_left_once()
    witness.finish()
    assert owner.count("throttler_transactions_total", outcome="unknown") == 0, "a zombie has fenced it"
    assert LaneOwner.objects.values("process", "starts").get() == reported, "a zombie has reported itself"
    assert owner.stop() == 0
    throttlers.assert_all_left_once()
    assert_changelog_moves_forward(throttlers.wire)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever sleeps in a transaction holds the whole file")
def test_a_zombie_with_rows_that_are_not_committed_holds_nobody_up(throttlers: Throttlers) -> None:
    throttlers.platform.environment["DATABASE_IDLE_TRANSACTION_SECONDS"] = "2"
    throttlers.send(2 * FIRST)  # most of it is above the rate
    zombie = throttlers.sabotaged("rows written", "freeze")
    wait_for(lambda: zombie.frozen, 60, "the throttler to freeze")
    heir = throttlers.start()  # stores the same rows
    throttlers.assert_all_left_once()
    zombie.thaw()
    throttlers.wait_for_members(2)
    throttlers.send(2 * FIRST)
    throttlers.assert_all_left_once()
    assert [zombie.stop(), heir.stop()] == [0, 0]
    throttlers.assert_all_left_once()
