"""Workers that are stopped, killed and frozen, as the page, home and `doctor` tell it; with real signals to real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.admin.home import home
from config.database.clock import database_now
from outbox.flow import Outbox
from outbox.processes.heartbeat import look_around
from outbox.processes.models import WorkerProcess
from outbox.processes.overview import sightings
from tests.crash.platform import Platform, Worker
from tests.crash.wire import wait_for
from tests.processes.conftest import database_url

SOON = 60  # seconds: what is promised
NOWHERE = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture
def platform(transactional_db: None, tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path, {**NOWHERE, "DATABASE_URL": database_url()}) as made:
        yield made


def state(worker: Worker) -> str:
    """What is known of this very process; empty before it has reported, and after another one has its row."""
    seen = {one.row.pid: one.state.value for one in sightings(database_now())}
    return seen.get(worker.process.pid, "")


def started(platform: Platform, command: str = "replay_letters") -> Worker:
    worker = platform.start(command)
    wait_for(lambda: state(worker) == "runs", SOON, f"{command} to report")
    return worker


def needs(worker: Worker) -> list[str]:
    """What home says of this process."""
    words = f"process {worker.process.pid}"
    return [need.title.partition(":")[0] for need in home(database_now())["needs"] if need.title.endswith(words)]


def failures() -> list[str]:
    """What `doctor` says of processes that is wrong."""
    return [detail for name, ok, detail in Outbox().diagnose() if name.startswith("worker ") and not ok]


def test_one_that_is_told_to_end_has_stopped_and_nobody_is_missed(platform):
    worker = started(platform)
    assert worker.stop() == 0
    assert (state(worker), needs(worker), failures()) == ("stopped", [], [])


def test_one_that_is_killed_is_dead_and_its_return_ends_that(platform):
    worker = started(platform)
    worker.kill()
    assert state(worker) == "dead"
    assert needs(worker) == ["Dead"]
    assert f"dead on {WorkerProcess.objects.get().host}, process {worker.process.pid}" in failures()[0]
    again = platform.start("replay_letters", "--metrics-port", str(worker.port))
    wait_for(lambda: not needs(worker), SOON, "the dead one not to be missed any more")
    assert (state(again), needs(again), failures()) == ("runs", [], [])


def test_one_that_is_frozen_is_silent_and_not_dead_and_comes_back(platform):
    worker = started(platform)
    worker.freeze()
    wait_for(lambda: state(worker) == "silent", SOON, "its silence to be noticed")
    look_around(database_now())
    assert (state(worker), needs(worker)) == ("silent", ["Silent"])
    assert "silent on" in failures()[0]
    other = platform.start("replay_letters")  # takes no row of a process that may wake up
    wait_for(lambda: state(other) == "runs", SOON, "the other one to report")
    worker.thaw()
    wait_for(lambda: state(worker) == "runs", SOON, "it to report again")
    assert (needs(worker), failures(), WorkerProcess.objects.count()) == ([], [], 2)


def test_the_others_of_its_host_write_down_that_it_is_gone(platform):
    worker, other = started(platform), started(platform, "relay_outbox")
    worker.kill()
    gone = WorkerProcess.objects.exclude(missed_at=None)
    wait_for(gone.exists, SOON, "another one to look for it")
    assert gone.get().pid == worker.process.pid
    assert state(other) == "runs"
