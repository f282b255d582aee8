"""A small crash run on this database; `make crash` is the large one."""

from __future__ import annotations

import pytest

from tests.crash.platform import Platform
from tests.crash.run import MAX_BATCH, TIMINGS, Plan, Run
from tests.processes.conftest import Broker, assert_holds

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
PLAN = Plan(orders=3000, warehouses=200, kills=2, seed=20_261_121, evict=True)


def test_killed_workers_lose_nothing_and_send_nothing_twice(broker: Broker, workers: Platform, pairs: range) -> None:
    workers.environment |= {**TIMINGS, "BUFFER_IDLE_SECONDS": "1", "BUFFER_MAX_BATCH": str(MAX_BATCH)}
    assert_holds(Run(workers, broker.wire, PLAN, len(pairs), print).go())
