"""The command line on a database without tables: one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.db import DatabaseError, connection, transaction

from config.database.errors import needs_migrate
from tests.tree import ROOT

COMMANDS = [
    "verify", "flow_summary", "is_drained", "recover_claims", "rotate_partitions", "dead_letters list", "create_token x",
    "relay_outbox --once",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_without_tables_is_named_in_one_line(command, tmp_path):
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3"}
    run = [sys.executable, "manage.py", *command.split()]
    ended = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert "manage.py migrate" in line


@pytest.mark.django_db
@pytest.mark.parametrize("sql", ["SELECT 1 FROM nowhere", "SELECT absent FROM outbox_watermark"])
def test_what_migrate_would_have_made_is_told_from_other_faults(sql):
    with pytest.raises(DatabaseError) as missing, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert needs_migrate(missing.value)
    with pytest.raises(DatabaseError) as wrong, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELEC 1")
    assert not needs_migrate(wrong.value)
