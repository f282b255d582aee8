"""Throttlers as processes: killed at every point of a transaction, taken over, and asked to stop."""

from __future__ import annotations

import pytest

from tests.crash.throttler.notices import Customer
from tests.crash.throttler.oracle import excess
from tests.crash.wire import wait_for
from tests.processes.throttler.throttlers import Throttlers, has_partitions

pytestmark = pytest.mark.kafka
POINTS = [
    "decided", "overflow stored", "records sent", "offsets sent", "commit sent", "transaction committed",
    "partition restored",
]  # fmt: skip
EACH = 8  # messages of each customer and life: some are above the rate


def test_a_named_throttler_that_dies_anywhere_sends_every_message_once(throttlers: Throttlers) -> None:
    for point in POINTS:
        throttlers.send(EACH)
        assert throttlers.sabotaged(point, "kill", "a").end(60) == -9, point
    last = throttlers.start("a")
    throttlers.assert_all_left_once()
    assert last.stop() == 0


def test_a_second_throttler_of_a_name_takes_the_place_of_the_first(throttlers: Throttlers) -> None:
    first = throttlers.start("a")
    throttlers.send(EACH)
    throttlers.assert_all_left_once()
    second = throttlers.start("a")
    wait_for(lambda: has_partitions(second), 60, "the second throttler to have partitions")
    assert first.end(10) == 1
    assert "another process" in first.text
    throttlers.send(EACH)
    throttlers.assert_all_left_once()
    assert second.stop() == 0


def test_a_throttler_that_is_told_to_stop_leaves_within_ten_seconds(throttlers: Throttlers) -> None:
    first = throttlers.start("a")
    wait_for(lambda: has_partitions(first), 60, "the throttler to have partitions")
    throttlers.send(2 * EACH)  # most of it waits
    throttlers.wait_for(1)
    assert first.stop(10) == 0
    second = throttlers.start("b")  # nobody waits for a session to end
    throttlers.assert_all_left_once()
    assert second.stop(10) == 0


def test_a_restart_gives_nobody_a_fresh_burst(throttlers: Throttlers) -> None:
    throttlers.send(6 * EACH, ["a"])
    for upto in (EACH, 2 * EACH):
        worker = throttlers.start("a")
        throttlers.wait_for(upto)
        assert worker.kill() == -9
    worker = throttlers.start("a")
    throttlers.assert_all_left_once()
    late, _at = excess(Customer("a", "5/s", ""), [record.timestamp for record in throttlers.left()])
    assert late < 0.7, "a fresh burst would be a whole second of the rate"
    assert worker.stop() == 0
