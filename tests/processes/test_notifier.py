"""The notifier as a process: a worker that is killed is told of within a minute, its return as well; and it dies itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.database.clock import database_now
from config.flows import Need
from outbox.notices.addresses import seal
from outbox.notices.incidents import look
from outbox.notices.models import KINDS, Notice, Subscription
from outbox.processes.overview import sightings
from tests.crash.platform import Platform, Worker
from tests.crash.wire import wait_for
from tests.outbox.notices.receiver import Receiver, receiving
from tests.processes.conftest import database_url

SOON = 60  # seconds: what is promised
NOWHERE = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
TELLS = {
    "NOTIFY_ALLOWED_HOSTS": "127.0.0.1", "NOTIFY_WINDOW_SECONDS": "5", "NOTIFY_TIMEOUT_SECONDS": "10",
    "SITE_URL": "https://ops.example.com",
}  # fmt: skip


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def platform(transactional_db: None, tmp_path: Path, settings) -> Iterator[Platform]:
    secret = {"SECRET_KEY": settings.SECRET_KEY}
    with Platform(tmp_path, {**NOWHERE, **TELLS, **secret, "DATABASE_URL": database_url()}) as made:
        yield made
        for worker in made.workers:
            print(f"--- the end of the log of {worker.name}", *worker.text.splitlines()[-10:], sep="\n")


def subscribed(address: str, name: str = "ops", kinds: list[str] | None = None) -> Subscription:
    return Subscription.objects.create(
        name=name,
        address=seal(address),
        shown="here",
        kinds=kinds or list(KINDS),
        urgency="watch",
        created_at=database_now(),
    )


def runs(worker: Worker) -> bool:
    return any(one.row.pid == worker.process.pid and one.state == "runs" for one in sightings(database_now()))


def started(platform: Platform, command: str) -> Worker:
    worker = platform.start(command)
    wait_for(lambda: runs(worker), 2 * SOON, f"{command} to report")
    return worker


def test_a_worker_that_is_killed_is_told_of_within_a_minute_and_its_return_as_well(platform, receiver):
    subscribed(receiver.slack_shaped, kinds=["worker"])
    started(platform, "notify_people")
    victim = started(platform, "replay_letters")
    victim.kill()
    told = f"Dead: replay_letters on {sightings(database_now())[0].row.host}, process {victim.process.pid}"
    wait_for(lambda: any(title.endswith(told) for title in receiver.titles), SOON, "the receiver to hear of it")
    assert "https://ops.example.com/admin/outbox/workerprocess/" in receiver.bodies[-1]["text"]
    again = started(platform, "replay_letters")
    wait_for(lambda: any("Over: " in title for title in receiver.titles), SOON, "the receiver to hear of its return")
    assert again.alive
    assert len(receiver.titles) == 2, "each of the two once"


def plan_one(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Something needs people, and the notifier that reads home would not see it: it stays open for a kind of its own."""
    need = Need("now", f"Bad {key}", "", "/admin/", "Show", kind="worker", key=key)
    monkeypatch.setattr("outbox.notices.incidents.needs_one_by_one", lambda now: [need])
    look(database_now())


def test_one_that_is_killed_between_sending_and_settling_tells_nothing_twice_in_its_window_and_loses_nothing(
    platform, receiver, monkeypatch
):
    subscribed(receiver.plain)
    plan_one(monkeypatch, "1")
    receiver.answers = ["hang"]
    victim = platform.start("notify_people")
    wait_for(receiver.hanging.is_set, 2 * SOON, "the first try to arrive")
    victim.kill()
    receiver.goes_on.set()
    assert Notice.objects.get(phase="opened").state == "sending"
    platform.start("notify_people")
    wait_for(lambda: Notice.objects.get(phase="opened").state == "sent", 3 * SOON, "it to be told again")
    first, second = receiver.bodies[:2]
    assert "repeat" not in first["message"]
    assert "This may be a repeat" in second["message"]
    assert len(receiver.bodies) == 2
