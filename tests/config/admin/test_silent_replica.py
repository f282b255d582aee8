"""A replica that falls silent: its sessions stay open, and nothing answers. Pages come from the primary, and nobody waits for long."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test import Client

from config import replica
from config.database.clock import database_now
from config.environment import databases
from outbox.processes.models import WorkerProcess
from tests.config.admin.conftest import list_of
from tests.config.admin.test_export import act
from tests.config.admin.test_replica import TRAIL, WORDS, is_asked
from tests.processes.conftest import database_url
from tests.processes.proxy import Gate

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", replica.REPLICA]),
    pytest.mark.usefixtures("way"),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server that could be silent"),
]


@pytest.fixture(scope="module")
def way(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """The alias of the replica, with the limits that it has, leads through a gate to the test database."""
    with pytest.MonkeyPatch.context() as patch, closing(Gate(database_url())) as gate:
        patch.setattr(databases, "SILENCE", 1)
        given = databases.databases(database_url(), gate.url, tmp_path_factory.mktemp("base"))["replica"]
        connections.settings[replica.REPLICA] = {**connection.settings_dict, **given}
        yield gate
        del connections[replica.REPLICA], connections.settings[replica.REPLICA]


@pytest.fixture
def gate(way: Gate, db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The replica has answered once. When it is silent, it speaks again at last: no test waits for ever."""
    is_asked(settings, monkeypatch)
    assert replica.lag.seconds() == 0.0
    at_last = threading.Timer(30, way.flows.set)
    at_last.start()
    yield way
    at_last.cancel()
    way.flows.set()
    connections[replica.REPLICA].close()


def test_a_page_that_is_on_its_way_comes_from_the_primary_and_the_next_ones_do_not_ask(
    boss: Client, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replica, "EACH", 600.0)
    monkeypatch.setattr(replica, "HOLDS", 600.0)
    act(2)
    gate.hang()
    assert replica.usable()  # nobody knows it yet
    page = boss.get(TRAIL).content.decode()
    assert "s00001" in page
    assert WORDS not in page
    assert connections[replica.REPLICA].connection is None  # given up with what it owes
    assert replica.lag.seconds() is None
    workers = boss.get(list_of(WorkerProcess)).content.decode()
    assert re.search(r"it does not answer \([^)].*\); the primary answers instead", workers)
    assert connections[replica.REPLICA].connection is None


def test_a_measurement_ends_and_so_does_a_new_session(gate: Gate, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica, "EACH", 0.0)
    gate.hang()
    for _ in ("the session that it has", "a new one"):
        assert replica.lag.seconds() is None
        assert not gate.flows.is_set()  # it was silent all the time
    assert "it does not answer" in replica.lag.in_words()


def test_django_s_look_at_a_session_before_it_is_used_again_ends(gate: Gate):
    session = connections[replica.REPLICA]
    gate.hang()
    session.close_if_unusable_or_obsolete()  # as at the beginning of each request
    with pytest.raises(OperationalError):
        database_now(replica.REPLICA)
    assert not gate.flows.is_set()


def test_it_is_read_again_when_it_speaks(boss: Client, gate: Gate, monkeypatch: pytest.MonkeyPatch):
    gate.hang()
    assert WORDS not in boss.get(TRAIL).content.decode()
    gate.flows.set()
    monkeypatch.setattr(replica, "EACH", 0.0)
    assert WORDS in boss.get(TRAIL).content.decode()


def test_others_do_not_wait_for_whoever_measures(gate: Gate, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replica, "EACH", 0.0)
    monkeypatch.setattr(replica, "HOLDS", 600.0)
    asked, answer = threading.Event(), threading.Event()

    def silent(alias: str) -> None:
        if alias == replica.REPLICA:
            asked.set()
            assert answer.wait(60)
            connections.close_all()

    monkeypatch.setattr(replica, "newest_report", silent)
    with ThreadPoolExecutor() as threads:
        measured = threads.submit(replica.lag.seconds)
        try:
            assert asked.wait(10)
            assert threads.submit(replica.lag.seconds).result(10) == 0.0  # what it was before
            monkeypatch.setattr(replica, "HOLDS", 0.0)
            assert threads.submit(replica.lag.in_words).result(10) == "it has not answered for some seconds"
            assert not measured.done()
        finally:
            answer.set()
        assert measured.result(10) is None


def test_the_server_ends_a_statement_that_takes_too_long(gate: Gate):
    asked = {
        "PostgreSQL": ("SHOW statement_timeout", "5s"),
        "MariaDB": ("SELECT @@SESSION.max_statement_time", 5),
        "MySQL": ("SELECT @@SESSION.max_execution_time", 5000),
    }
    with connections[replica.REPLICA].cursor() as theirs:
        sql, limit = asked[connection.display_name]
        theirs.execute(sql)
        assert theirs.fetchone()[0] == limit
