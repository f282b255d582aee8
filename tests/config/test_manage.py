"""The command line on a database without tables: one line that says what to do."""

from __future__ import annotations

import os
import signal
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
ELSEWHERE = """
import manage
def run_command():
    raise BrokenPipeError("a broker went away")
manage.run_command = run_command
manage.main()
"""


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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["help", "diffsettings --all"])
def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word(command, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    run = [sys.executable, "manage.py", *command.split()]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        run, cwd=ROOT, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_a_pipe_that_breaks_elsewhere_is_still_a_fault():
    run = [sys.executable, "-c", ELSEWHERE]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "a broker went away" in ended.stderr
