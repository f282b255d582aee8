"""Beat and the Celery worker say that they get on, with a broker and without."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from celery.signals import beat_init
from kombu.exceptions import OperationalError

from config.celery import app
from config.processes import progress
from tests.crash.platform import free_port
from tests.tree import ROOT

# Beat with a job a second: nobody waits a minute for the next.
BEAT = """
from config.celery import app
app.conf.beat_schedule = {"recover": {"task": "outbox.tasks.recover_claims", "schedule": 1.0}}
app.conf.beat_max_loop_interval = 1
app.Beat(loglevel="WARNING", quiet=True).run()
"""
PROGRAMS = {
    "beat": [sys.executable, "-c", BEAT],
    "worker": [sys.executable, "-m", "celery", "-A", "config", "worker", "--concurrency", "1"],
}


@pytest.fixture
def alive(settings, tmp_path):
    settings.CELERY_ALIVE_FILE = str(tmp_path / "alive")
    return tmp_path / "alive"


def test_beat_says_so_before_it_asks_the_database():
    assert beat_init.receivers[0][1]().__name__ == "process_gets_on"


def test_nothing_is_written_where_nobody_asks(settings):
    settings.CELERY_ALIVE_FILE = ""
    progress.touch()


def test_a_file_that_cannot_be_written_ends_nothing(settings, tmp_path):
    settings.CELERY_ALIVE_FILE = str(tmp_path / "missing" / "alive")
    progress.touch()


def test_who_waits_for_the_broker_gets_on(alive):
    told = []
    with pytest.raises(OperationalError), app.connection(f"amqp://127.0.0.1:{free_port()}//") as connection:
        connection.ensure_connection(lambda error, interval: told.append(interval), 1, interval_start=0)
    assert (alive.exists(), len(told)) == (True, 1)
    assert app.conf.broker_connection_max_retries is None, "and for as long as it takes"


@pytest.mark.processes
@pytest.mark.parametrize("broker", ["memory://here//", "amqp://127.0.0.1:{port}//"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_gets_on_with_a_broker_and_without(name, broker, tmp_path):
    file = tmp_path / "alive"
    environment = os.environ | {
        "CELERY_BROKER_URL": broker.format(port=free_port()), "CELERY_ALIVE_FILE": str(file),
        "CELERY_BEAT_SCHEDULE": str(tmp_path / "schedule"), "DATABASE_URL": f"sqlite:///{tmp_path}/none.sqlite3",
    }  # fmt: skip
    with subprocess.Popen(
        PROGRAMS[name], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _time in range(4):  # not only at its start
                until = time.monotonic() + 40
                while not file.exists() and time.monotonic() < until:
                    time.sleep(0.05)
                file.unlink()
            assert process.poll() is None
        finally:
            process.terminate()
