"""A named throttler that sleeps past its session beside another one: it wakes up, joins again, and accuses nobody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from outbox.models import DeadLetter
from tests.crash.wire import wait_for
from tests.processes.throttler.throttlers import Throttlers, has_partitions, throttlers_on

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(connection.vendor == "sqlite", reason="two minutes beside a server, which has no part in it"),
]
CUSTOMERS = [f"c{number}" for number in range(12)]
POINTS = ["offsets read", "partition restored", "decided", "commit sent", "page read", "mirror given"]
ACCUSATIONS = ["partition_stopped", "overflow_rows_lost", "reset_accepted", "stands still", "owner_failed"]
SLEEP = 9.0  # seconds: a session has 6


@pytest.fixture
def throttlers(transactional_db: None, tmp_path: Path) -> Iterator[Throttlers]:
    with throttlers_on(tmp_path, THROTTLER_DEFAULT_RATE="3/s") as found:
        yield found


def send_for(throttlers: Throttlers, seconds: float) -> None:
    """Keep positions moving, in every partition."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        throttlers.send(1, CUSTOMERS)
        time.sleep(0.2)


@pytest.mark.parametrize("point", POINTS)
def test_who_slept_longer_than_its_session_accuses_nobody(throttlers: Throttlers, point: str) -> None:
    heir = throttlers.start("b")
    throttlers.send(2, CUSTOMERS)
    wait_for(lambda: has_partitions(heir), 60, "the throttler to have partitions")
    throttlers.wait_for(len(CUSTOMERS))
    sleeper = throttlers.sabotaged(point, "freeze", "a")
    deadline = time.monotonic() + 60
    while not sleeper.frozen and time.monotonic() < deadline:
        send_for(throttlers, 0.2)
    assert sleeper.frozen, point
    send_for(throttlers, SLEEP)
    sleeper.thaw()
    send_for(throttlers, 4)
    throttlers.wait_for_members(2)
    throttlers.assert_all_left_once()
    assert not DeadLetter.objects.exists(), DeadLetter.objects.values_list("reason", "error")
    for worker in (sleeper, heir):
        assert [text for text in ACCUSATIONS if text in worker.text] == []
        assert worker.count("partition_stopped") == 0
        assert worker.stop() == 0
    throttlers.platform.manage("verify", "--kafka")
