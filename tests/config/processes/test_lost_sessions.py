"""Who keeps a session of the database gets another one when the server has ended it: the next round succeeds."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import closing
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction

from config.celery import app
from config.database.clock import database_now
from config.demo import simulation
from config.flows import SampleAction
from config.processes import worker
from outbox import console_batches
from outbox.messages import notify
from outbox.replay_batches.preview import reading_ahead
from outbox.workers.relay import Doorbell
from tests.lost_sessions import end_sessions

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = sorted(entry["task"] for entry in app.conf.beat_schedule.values())


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_beat_runs_itself(name: str) -> None:
    app.loader.import_default_modules()
    job = app.tasks[name]
    assert job.delay().successful()
    end_sessions()
    done = job.delay()
    assert done.successful(), done.traceback


def test_a_deed_of_the_sample_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def run() -> None:
        done.append(database_now())
        if len(done) == 1:
            end_sessions()

    flow = SimpleNamespace(name="some", samples=lambda _seed: repeat(SampleAction(run)))
    monkeypatch.setattr(simulation, "flows", lambda: [flow])
    monkeypatch.setattr(simulation, "Producer", lambda: SimpleNamespace(send_all=lambda _: [], close=lambda: None))
    call_command("simulate", count=3, rate=1000, stdout=io.StringIO())
    assert len(done) == 3


def test_a_loop_of_a_worker(stop: threading.Event) -> None:
    rounds: list[Any] = []

    def tick() -> int:
        rounds.append(database_now())
        if len(rounds) == 1:
            end_sessions()
        return len(rounds) < 3

    worker.run(tick, stop, once=True)
    assert len(rounds) == 3


def test_a_loop_that_loses_it_in_the_middle_of_a_round(stop: threading.Event) -> None:
    rounds: list[Any] = []

    def tick() -> int:
        database_now()
        if not rounds:
            rounds.append("lost")
            end_sessions()
        rounds.append(database_now())
        return 0

    worker.run(tick, stop, once=True)
    assert len(rounds) == 2


def test_a_command_that_carries_out_a_batch(monkeypatch: pytest.MonkeyPatch, stop: threading.Event) -> None:
    """Between its step and the look at what became of it, too."""
    looks: list[Any] = []

    def look() -> None:
        if not looks:
            looks.append("lost")
            end_sessions()
        looks.append(database_now())
        batch.state = console_batches.ENDED[0]

    batch: Any = SimpleNamespace(
        pk=1, state="running", refresh_from_db=look, percent=0, acted_on=0, to_act_on=0, note=""
    )
    steps: Any = SimpleNamespace(take=lambda _: database_now() and 0.0, leave=lambda _: database_now())
    monkeypatch.setattr(console_batches.Standstill, "why_none", lambda *_: "")
    console_batches.take_steps(batch, steps, stop, print)
    assert len(looks) == 2


def test_the_thread_that_reads_ahead_is_followed_by_one_with_a_session() -> None:
    def portion(_key: int) -> Any:
        return database_now()

    if connection.vendor == "sqlite":
        end_sessions()
    with pytest.raises(OperationalError), reading_ahead(portion) as ahead:
        ahead.begin(1)
        assert ahead.take(1)
        end_sessions()
        ahead.begin(2)
        ahead.take(2)
    connection.close()
    with reading_ahead(portion) as ahead:
        ahead.begin(3)
        assert ahead.take(3)


on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has NOTIFY")


@on_postgresql
def test_relays_are_told_again_and_hear_it_again(stop: threading.Event, told: Callable[[Doorbell], None]) -> None:
    with closing(Doorbell(stop)) as doorbell:
        told(doorbell)
        end_sessions()
        told(doorbell)


@pytest.fixture
def told() -> Callable[[Doorbell], None]:
    def check(doorbell: Doorbell) -> None:
        doorbell.wait(5)  # begins to listen, or finds out that nobody does any more
        doorbell.wait(5)
        notify.notify_relays()
        assert doorbell.wait(10)

    return check


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def test_a_job_inside_a_transaction_leaves_its_session_alone() -> None:
    """Of the caller, who would lose what it has written."""
    app.loader.import_default_modules()
    with transaction.atomic():
        session = connection.connection
        assert app.tasks["outbox.tasks.recover_claims"].delay().successful()
        assert connection.connection is session
