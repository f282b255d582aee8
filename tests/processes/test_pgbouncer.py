"""Everything behind PgBouncer in transaction mode, set up as deploy/pgbouncer says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import DatabaseError, connection
from django.db.utils import ConnectionHandler

from config.database.retry import Remedy, remedy_for
from config.environment.databases import database_from_url
from outbox.bookkeeping.models import JobLease
from tests.crash.wire import wait_for
from tests.databases import run_with
from tests.drills.stage import BEAT
from tests.processes.conftest import assert_verified, database_url
from tests.processes.everybody import everybody
from tests.processes.pooler import PgBouncer, program, role_settings
from tests.tree import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PgBouncer is for PostgreSQL"),
]
NAME = "spillway_pooled"  # a role of its own: its settings are those of no other test


@pytest.fixture
def role(transactional_db: None) -> Iterator[str]:
    """With the settings of the example."""
    made = f"CREATE ROLE {NAME} LOGIN PASSWORD '{NAME}' IN ROLE {connection.settings_dict['USER']}"
    with connection.cursor() as cursor:
        for statement in [
            f"DROP ROLE IF EXISTS {NAME}",
            made,
            *(one.replace("spillway_app", NAME) for one in role_settings()),
        ]:
            cursor.execute(statement)
    yield NAME
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [NAME])
        cursor.execute(f"DROP ROLE {NAME}")


@pytest.fixture
def pooled(role: str, tmp_path: Path) -> Iterator[str]:
    """The URL of the test database through a PgBouncer with the example's settings."""
    if not program():
        pytest.skip("PgBouncer is not installed")
    with PgBouncer(tmp_path, database_url(), role) as pooler:
        yield pooler.url(urlsplit(database_url()).path.strip("/"))


def test_the_example_sets_for_the_role_what_the_pooler_drops() -> None:
    """`options` are what each session brings along."""
    options = database_from_url("postgres://u:p@h/d", ROOT, 10)["OPTIONS"]["options"]
    brought = {name.lower() for name in re.findall(r"-c (\w+)=", options)}
    assert brought == {name.lower() for name in re.findall(r"SET (\w+) =", "".join(role_settings()))}


def test_a_url_that_does_not_say_that_a_pooler_is_there_is_refused(pooled: str) -> None:
    done = run_with(pooled.partition("?")[0], "manage.py", "check", "--database", "default")
    assert "(spillway.E026)" in done.stderr
    assert done.returncode == 1


def test_a_session_that_ends_before_its_commit_is_replaced(pooled: str) -> None:
    """The server says so and the pooler, too: the driver takes that for two answers."""
    sessions = ConnectionHandler({name: database_from_url(pooled, ROOT) for name in ("default", "other")})
    sessions["default"].set_autocommit(False)
    with sessions["default"].cursor() as cursor, sessions["other"].cursor() as other:
        cursor.execute("SELECT pg_backend_pid()")
        other.execute("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())
    with pytest.raises(DatabaseError) as caught:
        sessions["default"].commit()
    sessions.close_all()
    assert remedy_for(caught.value) is Remedy.WAIT


def test_every_process_works_behind_it(pooled: str, tmp_path: Path, settings: Any) -> None:
    with everybody(tmp_path, settings, pooled) as platform:
        platform.platform.manage("check", "--database", "default", "--fail-level", "WARNING")
        beat = platform.platform.run(BEAT, "beat", {"CELERY_BEAT_SCHEDULE": str(tmp_path / "schedule")})
        platform.get_on()
        platform.get_on()
        wait_for(JobLease.objects.filter(token=None, job="seal_actions").exists, 120, "a job of beat")
        found = json.loads(platform.platform.manage("doctor", "--json", check=False).stdout)["findings"]
        looked_at = {finding["name"]: (finding["ok"], finding["detail"]) for finding in found}
        assert [looked_at[name][0] for name in ("beat", "worker beat", "database session")] == [True, True, True]
        assert looked_at["beat"][1].startswith("a job ended ")
        assert beat.stop() == 0
        platform.stop()
        platform.platform.manage(
            "run_throttler", "--until-idle", "5"
        )  # mirrors what the first had no time for at its end
        assert_verified()
        text = "".join(worker.text for worker in platform.workers)
    assert "prepared statement" not in text
    assert "doorbell_lost" not in text
    assert "database_unavailable" not in text
