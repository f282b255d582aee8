"""The command line on a database without tables: one line that says what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from django.core.management import get_commands
from django.db import DatabaseError, connection, transaction

from config.database.retry import needs_migrate
from tests.prepared import run_python
from tests.tree import ROOT

pytestmark = pytest.mark.processes
ONE_LINE = [
    "create_token x", "customers list", "customers show C-7", "customers hold C-7 --reason because",
    "customers hold C-7 --dry-run", "dead_letters list", "dead_letters requeue --all --reason because", "demo_user", "flow_summary",
    "flow_summary --arrived", "flush_buffer --once", "import_customers {customers}",
    "import_customers {customers} --dry-run", "import_stock {file}", "import_stock {file} --dry-run",
    "ingest_events --once", "ingest_messages --once", "is_drained", "listen_outbox --once", "rebuild_buffer", "rebuild_buffer --dry-run",
    "recover_claims", "relay_outbox --once", "replay_letters --once", "notify_people --once", "replay_topic --pending --once",
    "resend_messages --since 2026-01-01T00:00:00Z --reason because",
    "replay_topic transfer-requests --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z --reason because",
    "rotate_partitions", "rotate_partitions --dry-run", "run_all", "run_throttler --once", "simulate --count 1", "track_inventory --once",
    "verify", "verify --json",
]  # fmt: skip
ELSEWHERE = """
from spillway_ext import command_line
def run_command():
    raise BrokenPipeError("a broker went away")
command_line.run_command = run_command
command_line.main()
"""


WITHOUT_TABLES = {"create_overflow_store", "create_topics", "embedded_kafka", "migrate", "runserver"}
NO_TABLE = {"extensions", "startproject"}
FINDINGS = {"doctor"}  # says all that is wrong, missing migrations among it


def test_every_command_is_tried_without_tables():
    ours = {
        name
        for name, app in get_commands().items()
        if app in {"config", "buffer", "outbox", "throttler", "notifications"}
    }
    assert {line.split()[0] for line in ONE_LINE} | WITHOUT_TABLES | NO_TABLE | FINDINGS == ours


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all commands: what has one environment is set up once (`tests/prepared.py`), and none of them gets far."""
    return tmp_path_factory.mktemp("manage")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="it brings its own database: once is enough")
@pytest.mark.parametrize("command", ONE_LINE)
def test_a_database_without_tables_is_named_in_one_line(command, folder):
    stock = folder / "stock.csv"
    stock.write_text("stock_id,item,location,quantity\nA,B,C,1\n")
    customers = folder / "customers.csv"
    customers.write_text("customer_id,rates,burst,ttl_seconds\nC-7,1/s,,\n")
    nothing = {"DATABASE_URL": f"sqlite:///{folder}/empty.sqlite3", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    words = command.format(file=stock, customers=customers).split()
    ended = run_python("manage.py", *words, env={**os.environ, **nothing, "DEMO": "1"})
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


@pytest.mark.parametrize(("value", "good"), [("hex:", False), ("hex:0", False), ("hex:zz", False), ("hex:00ff", True)])
def test_a_placeholder_of_bytes_is_in_hexadecimal_digits(value, good):
    environment = {**os.environ, "DEBEZIUM_UNAVAILABLE_VALUE": value}
    ended = run_python("manage.py", "help", "check", env=environment)
    assert (ended.returncode == 0) is good
    assert ("DEBEZIUM_UNAVAILABLE_VALUE: after `hex:`" in ended.stderr) is not good
