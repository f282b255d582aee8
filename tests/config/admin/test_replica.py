"""The read replica: what reads it, who does not, and what happens while it is behind or away."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, connections, models, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from buffer.events.models import Bucket
from config import replica
from config.database.clock import database_now
from config.environment.databases import database_from_url
from config.probes import doctor
from config.processes.alive import Report
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.letters.models import DeadLetter
from outbox.processes.models import WorkerProcess
from tests.config.admin.conftest import list_of
from tests.config.admin.test_export import act, download
from tests.databases import empty_database

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", replica.REPLICA])
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = "8c4f0a3e-6d8e-4a53-9f0e-3a2f4c1b7d10"
TRAIL = list_of(OperatorAction)
BEHIND = "0 s behind by the newest report of a worker"
WORDS = f"Read from the replica, {BEHIND}"


@pytest.fixture(scope="module", autouse=True)
def _alias(django_db_setup: None) -> Iterator[None]:
    """A second way to the test database, by the alias of the replica."""
    connections.settings[replica.REPLICA] = {**connection.settings_dict, "TEST": {"MIRROR": "default"}}
    yield
    del connections[replica.REPLICA], connections.settings[replica.REPLICA]


def is_asked(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages ask the replica, and a worker has just reported."""
    settings.HEARTBEAT = "outbox.processes.heartbeat.Heartbeat"
    settings.DATABASE_ROUTERS = ["config.replica.Router"]
    monkeypatch.setattr(replica, "lag", replica.Lag())
    now = database_now()
    WorkerProcess.objects.create(
        run=RUN, command="relay_outbox", host="h", place="p", pid=1, mark="m",
        version="1", since=now, kept_since=now, seen_at=now,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _replica(settings, monkeypatch) -> Iterator[None]:
    is_asked(settings, monkeypatch)
    yield
    connections[replica.REPLICA].close()


def asked(client: Client, url: str) -> tuple[str, list[str], list[str]]:
    """What a page says, and what the primary and the replica were asked for it."""
    with CaptureQueriesContext(connection) as ours, CaptureQueriesContext(connections[replica.REPLICA]) as theirs:
        response = client.get(url)
    assert response.status_code == 200
    return response.content.decode(), *([query["sql"] for query in them] for them in (ours, theirs))


def about(queries: list[str], model: type[models.Model]) -> list[str]:
    return [sql for sql in queries if f"FROM {connection.ops.quote_name(model._meta.db_table)}" in sql]


@pytest.mark.parametrize(
    ("ours", "theirs", "seconds"),
    [
        (3, 3, 0.0),
        (3, 2, 0.0),  # it has a report that came after the primary was asked
        (3, 8, 8.0),
        (29, 29, 0.0),
        (31, 31, None),  # nobody reports, so that both are the same says nothing
        (3, None, float("inf")),
        (None, None, None),
    ],
)
def test_how_far_it_is_behind(ours, theirs, seconds):
    at = [None if ago is None else NOW - timedelta(seconds=ago) for ago in (ours, theirs)]
    assert replica.seconds_behind(NOW, *at) == seconds


def test_a_list_of_what_happened_is_read_there_and_rights_are_not(boss):
    assert WORDS in asked(boss, TRAIL)[0]  # an empty one says so, too
    act(3)
    page, ours, theirs = asked(boss, TRAIL)
    assert WORDS in page
    assert about(theirs, OperatorAction)
    assert not about(ours, OperatorAction)
    assert about(ours, Session)
    assert about(ours, User)
    assert not [sql for sql in theirs if "auth_" in sql or "django_session" in sql]


def test_what_is_there_now_is_read_from_the_primary(boss):
    for model in (Bucket, WorkerProcess, Watermark):
        page, _ours, theirs = asked(boss, list_of(model))
        assert "Read from the replica" not in page
        assert not about(theirs, Bucket) + about(theirs, Watermark)


def test_who_has_just_written_reads_the_primary(boss, settings):
    act(1)
    response = boss.post(list_of(DeadLetter), {"action": ""})
    cookie = response.cookies[replica.WROTE]
    assert int(cookie["max-age"]) > settings.REPLICA_MAX_LAG_SECONDS
    assert int(cookie["max-age"]) > replica.REPORTED + replica.EACH  # so old a report counts as the newest
    settings.REPLICA_MAX_LAG_SECONDS = 60
    assert int(boss.post(list_of(DeadLetter), {"action": ""}).cookies[replica.WROTE]["max-age"]) > 60
    assert cookie["httponly"]
    page, ours, theirs = asked(boss, TRAIL)
    assert (WORDS in page, bool(about(ours, OperatorAction)), theirs) == (False, True, [])
    del boss.cookies[replica.WROTE]  # as a browser does when its time is over
    assert WORDS in asked(boss, TRAIL)[0]


@pytest.mark.parametrize("behind", [None, 10.5])
def test_a_replica_that_is_late_or_cannot_be_told_is_not_read(boss, monkeypatch, behind):
    reports = {"default": 40 if behind is None else 1, "replica": behind or 40}
    monkeypatch.setattr(
        replica, "newest_report", lambda alias: Report(database_now() - timedelta(seconds=reports[alias]), RUN)
    )
    page, ours, theirs = asked(boss, TRAIL)
    assert "Read from the replica" not in page
    assert about(ours, OperatorAction)
    assert theirs == []


def test_a_replica_that_fails_meanwhile_is_replaced_by_the_primary_and_left_alone(boss, monkeypatch):
    act(2)
    assert replica.usable()
    calls: list[str] = []

    def cancelled(execute, sql, params, many, context):
        calls.append(sql)
        raise OperationalError("canceling statement due to conflict with recovery")

    with connections[replica.REPLICA].execute_wrapper(cancelled):
        page, ours, _theirs = asked(boss, TRAIL)
        again = boss.get(TRAIL).content.decode()
    assert len(calls) == 1
    assert "s00001" in page
    assert "s00001" in again
    assert WORDS not in page
    assert about(ours, OperatorAction)


def test_it_is_measured_again_after_the_primary_failed(monkeypatch):
    def away(alias: str) -> None:
        raise OperationalError("the primary is away")

    with monkeypatch.context() as patch, pytest.raises(OperationalError, match="primary"):
        patch.setattr(replica, "newest_report", away)
        replica.lag.seconds()
    assert replica.lag.seconds() == 0.0


def test_writes_locks_and_rows_of_it_belong_to_the_primary():
    act(1)
    with replica.reading():
        row = OperatorAction.objects.get()
    assert row._state.db == replica.REPLICA
    with replica.reading(), CaptureQueriesContext(connections[replica.REPLICA]) as theirs, transaction.atomic():
        list(OperatorAction.objects.select_for_update().filter(pk=row.pk))
        OperatorAction.objects.filter(pk=row.pk).update(reason="another")
    row.refresh_from_db()
    assert (row.reason, row._state.db, list(theirs)) == ("another", "default", [])


def test_a_file_and_gauges_are_read_there(boss, client, settings):
    settings.ALLOWED_HOSTS = ["testserver"]
    act(3)
    with CaptureQueriesContext(connections[replica.REPLICA]) as theirs:
        assert "s00002" in download(boss, OperatorAction)
    assert about([query["sql"] for query in theirs], OperatorAction)
    text, _ours, theirs = asked(client, "/metrics")
    assert "spillway_replica_lag_seconds 0.0" in text
    assert about(theirs, FlowCounter)


def test_doctor_and_the_page_of_workers_say_how_it_is(boss, monkeypatch):
    def line() -> doctor.Finding:
        return next(doctor._replica())

    assert line().ok
    assert f"{BEHIND}; lists and gauges are read there" in line().detail
    assert BEHIND in boss.get(list_of(WorkerProcess)).content.decode()
    monkeypatch.setattr(replica, "lag", late := replica.Lag())
    late.failed(OperationalError("gone"))
    assert not line().ok
    assert "it does not answer (gone); until it is within 10 s the primary answers" in line().detail
    assert "the primary answers instead" in boss.get(list_of(WorkerProcess)).content.decode()


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[[str], doctor.Finding]]:
    """What `doctor` says of a database whose only table knows that worker, which has just reported there."""

    def look(run: str) -> doctor.Finding:
        values = WorkerProcess.objects.values().get() | {"run": run, "id": 1}
        WorkerProcess.objects.using(replica.REPLICA).create(**values)
        return next(doctor._replica())

    said = connections.settings[replica.REPLICA]
    with empty_database("replica", tmp_path) as url:
        connections[replica.REPLICA].close()
        name = database_from_url(url, tmp_path)["NAME"]
        connections.settings[replica.REPLICA] = {**connection.settings_dict, "NAME": name}
        del connections[replica.REPLICA]
        with connections[replica.REPLICA].schema_editor() as editor:
            editor.create_model(WorkerProcess)
        yield look
        connections[replica.REPLICA].close()
        connections.settings[replica.REPLICA] = said
        del connections[replica.REPLICA]


def test_the_database_of_another_installation_is_no_replica(boss, another):
    finding = another(str(uuid.uuid4()))
    assert not finding.ok
    assert (
        "it is no copy of the database of DATABASE_URL: a worker reports there that is unknown here" in finding.detail
    )
    act(1)
    page = boss.get(TRAIL).content.decode()
    assert "s00000" in page
    assert "Read from the replica" not in page


def test_doctor_names_a_table_that_the_replica_lacks(another):
    finding = another(RUN)
    assert not finding.ok
    assert f"{BEHIND}; its tables are not those of the primary, which answers instead (" in finding.detail
