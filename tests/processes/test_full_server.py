"""A server that lets nobody in for now: it is full, or a pooler before it is. Who starts meanwhile waits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from notifications.flow import next_order_event
from outbox.messages.models import OutboxMessage
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.lost_sessions import sessions
from tests.processes.conftest import database_url
from tests.processes.web import PLAIN, Site

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="a file is never full of sessions"),
]
NAME = "spillway_crowded"
LIMITED = {"postgresql": "ALTER ROLE {} CONNECTION LIMIT {}", "mysql": "ALTER USER {} WITH MAX_USER_CONNECTIONS {}"}
NO_LIMIT = {"postgresql": -1, "mysql": 0}


class Crowd:
    """A user of the test database who may have one session, which somebody has."""

    def __init__(self) -> None:
        self.url = (
            urlsplit(database_url())
            ._replace(netloc=f"{NAME}:{NAME}@{urlsplit(database_url()).netloc.split('@')[1]}")
            .geturl()
        )
        self.run(*self._created(), self._limit(1))
        self.somebody: Any = connection.copy()
        self.somebody.settings_dict = {**connection.settings_dict, "USER": NAME, "PASSWORD": NAME}
        self.somebody.ensure_connection()

    def leave(self) -> None:
        self.somebody.close()
        self.run(self._limit(NO_LIMIT[connection.vendor]))

    def close(self) -> None:
        self.somebody.close()
        self.run(
            "DROP ROLE IF EXISTS spillway_crowded"
            if connection.vendor == "postgresql"
            else f"DROP USER IF EXISTS {NAME}"
        )

    def run(self, *statements: str) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _limit(self, number: int) -> str:
        return LIMITED[connection.vendor].format(NAME, number)

    def _created(self) -> list[str]:
        where = connection.settings_dict
        if connection.vendor == "postgresql":
            return [
                f"DROP ROLE IF EXISTS {NAME}",
                f"CREATE ROLE {NAME} LOGIN PASSWORD '{NAME}' IN ROLE {where['USER']}",
            ]
        return [
            f"DROP USER IF EXISTS {NAME}",
            f"CREATE USER {NAME} IDENTIFIED BY '{NAME}'",
            f"GRANT ALL ON {where['NAME']}.* TO {NAME}",
        ]


@pytest.fixture
def crowd(transactional_db: None) -> Iterator[Crowd]:
    with closing(Crowd()) as found:
        yield found


@pytest.fixture
def platform(crowd: Crowd, tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path, {"DATABASE_URL": crowd.url, "EMAIL_CHANNEL": "memory"}) as found:
        yield found


def test_a_worker_that_starts_while_the_server_is_full_waits_for_its_turn(crowd: Crowd, platform: Platform) -> None:
    rng = random.Random(1)
    while not OutboxMessage.objects.exists():
        next_order_event(rng)
    worker = platform.start("relay_outbox", "--channel", "email")
    wait_for(lambda: worker.text.count("database_unavailable") > 1, 120, "the worker to notice")
    assert worker.alive
    assert '"worker":"start"' in worker.text
    crowd.leave()
    wait_for(lambda: not OutboxMessage.objects.unfinished().exists(), 120, "the mail to leave")
    assert worker.stop() == 0


def test_a_worker_that_waits_for_its_turn_can_be_told_to_stop(crowd: Crowd, platform: Platform) -> None:
    worker = platform.start("relay_outbox")
    wait_for(lambda: "database_unavailable" in worker.text, 120, "the worker to notice")
    assert worker.stop() == 0


def test_a_job_of_cron_does_not_wait_for_ever(crowd: Crowd, platform: Platform) -> None:
    ended = platform.manage("relay_outbox", "--once", check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("spillway: the database that DATABASE_URL names: ")


def test_the_server_for_development_keeps_no_session(transactional_db: None, tmp_path: Path) -> None:
    """It gives each request a thread, whose session nobody used again: 143 after 300 requests."""
    site, before = Site(), set(sessions())
    with Platform(tmp_path, {"DATABASE_URL": database_url(), **PLAIN}) as platform:
        platform.run(["manage.py", "runserver", "--noreload", str(site.port)], "runserver", {})
        wait_for(lambda: site.get("/healthz").status == 200, 180, "the server to answer")
        assert [site.get("/readyz").status for _ in range(12)] == [200] * 12
        wait_for(lambda: not set(sessions()) - before, 10, "the last one to be given up")
