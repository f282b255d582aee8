"""Everything behind PgBouncer in transaction mode, set up as docs/deploy.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from config.environment.databases import database_from_url
from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.processes.conftest import assert_verified, database_url
from tests.processes.everybody import everybody
from tests.tree import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PgBouncer is for PostgreSQL"),
]
NAME = "spillway_pooled"  # a role of its own: its settings are those of no other test
DEPLOY = (ROOT / "docs" / "deploy.md").read_text()
CHAPTER = DEPLOY[DEPLOY.index("### Behind PgBouncer") : DEPLOY.index("### Behind a proxy")]


@pytest.fixture
def role(transactional_db: None) -> Iterator[str]:
    """With the settings that the chapter names."""
    wanted = re.findall(r"ALTER ROLE spillway SET [^;]+;", CHAPTER)
    made = f"CREATE ROLE {NAME} LOGIN PASSWORD '{NAME}' IN ROLE {connection.settings_dict['USER']}"
    with connection.cursor() as cursor:
        for statement in [f"DROP ROLE IF EXISTS {NAME}", made, *(one.replace("spillway", NAME) for one in wanted)]:
            cursor.execute(statement)
    yield NAME
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [NAME])
        cursor.execute(f"DROP ROLE {NAME}")


@pytest.fixture
def pooled(role: str, tmp_path: Path) -> Iterator[str]:
    """The URL of the test database through a PgBouncer with the chapter's settings."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not program:
        pytest.skip("PgBouncer is not installed")
    port, server = free_port(), urlsplit(database_url())
    settings = "\n".join(re.findall(r"^ +((?:pool_mode|ignore_startup_parameters) = .+)$", CHAPTER, re.MULTILINE))
    (tmp_path / "users.txt").write_text(f'"{role}" "{role}"\n')
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server.hostname} port={server.port}\n[pgbouncer]\n{settings}\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {tmp_path}/users.txt\n"
        "default_pool_size = 12\nmax_client_conn = 300\n"
    )
    command = [program, str(tmp_path / "pgbouncer.ini")]
    if os.geteuid() == 0:  # which it refuses
        keep = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
        command = ["setpriv", "--reuid", "nobody", "--clear-groups", *keep, "--", *command]
    with (tmp_path / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: "process up" in (tmp_path / "pgbouncer.log").read_text(), 30, "PgBouncer")
        yield f"postgres://{role}:{role}@127.0.0.1:{port}{server.path}?disable_server_side_cursors=True"
    finally:
        process.terminate()
        process.wait(20)


def test_the_chapter_sets_for_the_role_what_the_pooler_drops() -> None:
    """`options` are what each session brings along."""
    options = database_from_url("postgres://u:p@h/d", ROOT, 10)["OPTIONS"]["options"]
    brought = {name.lower() for name in re.findall(r"-c (\w+)=", options)}
    assert brought == {name.lower() for name in re.findall(r"ALTER ROLE spillway SET (\w+)", CHAPTER)}


def test_every_process_works_behind_it(pooled: str, tmp_path: Path, settings: Any) -> None:
    with everybody(tmp_path, settings, pooled) as platform:
        platform.platform.manage("check", "--database", "default", "--fail-level", "WARNING")
        platform.get_on()
        platform.get_on()
        platform.stop()
        platform.platform.manage(
            "run_throttler", "--until-idle", "5"
        )  # mirrors what the first had no time for at its end
        assert_verified()
        text = "".join(worker.text for worker in platform.workers)
    assert "prepared statement" not in text
    assert "doorbell_lost" not in text
    assert "database_unavailable" not in text
