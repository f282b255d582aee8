"""Backoff, ids, error classes and the loop."""

import threading
import time
import uuid
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import DataError, IntegrityError, InterfaceError, InternalError, OperationalError, ProgrammingError
from hypothesis import given
from hypothesis import strategies as st

from config.database import retry
from config.database.retry import Remedy, Stale, full_jitter, is_duplicate, remedy_for
from config.fields import smallest_uuid7, uuid7
from config.processes import worker
from config.telemetry import metrics


@pytest.mark.parametrize("label", ["config", "outbox", "buffer", "throttler", "notifications", "admin"])
def test_each_app_has_its_own_configuration(label):
    """Where Django does not know which one to take, it takes its own, and nothing is registered."""
    assert type(apps.get_app_config(label)).__module__ == f"{'config' if label == 'admin' else label}.apps"


@given(st.integers(-5, 2000), st.floats(0.001, 100), st.floats(0.001, 10_000), st.floats(0, 1))
def test_full_jitter_stays_within_its_ceiling(attempt, base, cap, fraction):
    assert 0 <= full_jitter(attempt, base=base, cap=cap, fraction=fraction) <= cap


def test_full_jitter_doubles_until_the_cap():
    assert [full_jitter(n, base=5, cap=60, fraction=1) for n in (1, 2, 3, 4, 5)] == [5, 10, 20, 40, 60]


def test_ids_sort_by_time_even_within_a_microsecond():
    ids = [uuid7() for _ in range(5000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5000
    assert {(found.version, found.variant) for found in ids} == {(7, uuid.RFC_4122)}
    now = int(time.time() * 1000)
    assert smallest_uuid7(now - 60_000) < ids[0] < smallest_uuid7(now + 60_000)


class Cause(Exception):
    def __init__(self, *args, sqlstate=None, constraint=None):
        super().__init__(*args)
        self.sqlstate = sqlstate
        self.diag = SimpleNamespace(constraint_name=constraint)


def caused(error, cause):
    error.__cause__ = cause
    return error


# Full, starting, stopping; of a pooler, whatever it says: the protocol is violated.
AWAY_FOR_A_WHILE = ["53300", "57P01", "57P02", "57P03", "08006", "08P01"]
# Full (1040, 1203, 1226, 1129), stopping (1053, 1927), away (2002, 2003, 2006, 2013), only reading (1290, 1792, 1836).
AWAY_FOR_A_WHILE_ON_MYSQL = [1040, 1203, 1226, 1129, 1053, 1927, 2002, 2003, 2006, 2013, 1290, 1792, 1836]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (caused(OperationalError("x"), Cause(1213, "deadlock")), Remedy.RERUN),
        (caused(OperationalError("x"), Cause(1205, "lock wait")), Remedy.RERUN),
        (caused(OperationalError("x"), Cause(1467, "Failed to read auto-increment value")), Remedy.RERUN),
        (caused(OperationalError("x"), Cause("x", sqlstate="40P01")), Remedy.RERUN),
        (caused(OperationalError("x"), Cause("x", sqlstate="40001")), Remedy.RERUN),
        (OperationalError("database is locked"), Remedy.RERUN),
        (Stale(), Remedy.RERUN),
        (caused(OperationalError("x"), Cause(2006, "server has gone away")), Remedy.WAIT),
        (caused(OperationalError("x"), Cause("x", sqlstate="53100")), Remedy.WAIT),  # disk full
        (caused(InternalError("x"), Cause("x", sqlstate="25P03")), Remedy.WAIT),  # idle in a transaction
        (caused(InternalError("x"), Cause("x", sqlstate="25006")), Remedy.WAIT),  # it only reads since a failover
        *((caused(OperationalError("x"), Cause("x", sqlstate=state)), Remedy.WAIT) for state in AWAY_FOR_A_WHILE),
        *((caused(OperationalError("x"), Cause(number, "x")), Remedy.WAIT) for number in AWAY_FOR_A_WHILE_ON_MYSQL),
        (OperationalError("connection failed: FATAL:  sorry, too many clients already"), Remedy.WAIT),
        (OperationalError("connection failed: FATAL:  no more connections allowed (max_client_conn)"), Remedy.WAIT),
        (InterfaceError(0, ""), Remedy.WAIT),  # what MySQL's driver says of a session that it has given up
        (caused(ProgrammingError("x"), Cause("x", sqlstate="42P01")), Remedy.WAIT),  # not migrated yet
        (caused(InternalError("x"), Cause("received 2 results from command 'COMMIT'")), Remedy.WAIT),
        (caused(InternalError("x"), Cause("cache lookup failed", sqlstate="XX000")), Remedy.BUG),
        (caused(OperationalError("x"), Cause(1213, "WSREP: aborted at COMMIT")), Remedy.RERUN),
        (caused(OperationalError("x"), Cause(1047, "WSREP has not yet prepared node")), Remedy.WAIT),
        (caused(OperationalError("x"), Cause(1526, "no partition")), Remedy.PARTITION),
        (
            caused(IntegrityError("keine Partition von Relation gefunden"), Cause("x", sqlstate="23514")),
            Remedy.PARTITION,
        ),
        (caused(IntegrityError("x"), Cause("x", sqlstate="23514", constraint="positive")), Remedy.DATA),
        (caused(DataError("x"), Cause("x", sqlstate="22003")), Remedy.DATA),
        (caused(OperationalError("x"), Cause(1366, "incorrect string value")), Remedy.DATA),
        (ValueError("x"), Remedy.DATA),
        (TypeError("x"), Remedy.BUG),
    ],
)
def test_each_failure_has_its_remedy(error, remedy):
    assert remedy_for(error) is remedy


def test_only_a_unique_violation_is_a_duplicate():
    assert is_duplicate(caused(IntegrityError("x"), Cause("x", sqlstate="23505")))
    assert is_duplicate(caused(IntegrityError("x"), Cause(1062, "duplicate")))
    assert is_duplicate(IntegrityError("UNIQUE constraint failed: t.a"))
    assert not is_duplicate(caused(IntegrityError("no partition"), Cause("x", sqlstate="23514")))


@pytest.fixture
def _no_database(monkeypatch):
    monkeypatch.setattr(worker, "close_old_connections", lambda: None)
    monkeypatch.setattr(retry.connection, "close", lambda: None)


@pytest.mark.usefixtures("_no_database")
class TestLoop:
    def test_it_ticks_while_there_is_work_and_once_ends_then(self):
        work = [3, 2, 1, 0, 99]
        worker.run(lambda: work.pop(0), threading.Event(), once=True)
        assert work == [99]

    def test_it_sleeps_only_on_zero(self):
        stop, work, pauses = threading.Event(), [1, 0, 1, 0], []

        def pause():
            pauses.append(len(work))
            if not work:
                stop.set()
            return 0.0

        worker.run(lambda: work.pop(0), stop, pause=pause)
        assert pauses == [2, 0]

    def test_a_stop_ends_the_longest_pause_at_once(self):
        stop = threading.Event()
        threading.Timer(0.05, stop.set).start()
        started = time.monotonic()
        worker.run(lambda: 0, stop, pause=lambda: 600.0)
        assert time.monotonic() - started < 300

    @pytest.mark.parametrize("error", [caused(OperationalError("x"), Cause(1213, "deadlock")), Stale()])
    def test_a_deadlock_is_tried_again_and_does_not_count_as_idle(self, error):
        answers = [error, 0]

        def tick():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        worker.run(tick, threading.Event(), pause=lambda: 0.0, once=True)
        assert answers == []

    def test_what_is_stale_is_read_again(self):
        answers = [Stale(), Stale(), "read"]

        def unit():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        counted = metrics.RERUN.labels("test", "stale")._value
        before = counted.get()
        assert worker.until_it_stands(unit, "test", lambda failures, remedy: remedy is Remedy.RERUN) == "read"
        assert counted.get() - before == 2

    def test_what_is_not_worth_it_is_raised(self):
        def unit():
            raise Stale

        with pytest.raises(Stale):
            worker.until_it_stands(unit, "test", lambda failures, remedy: failures < 3)

    def test_once_gives_up_on_a_database_that_stays_away(self, monkeypatch):
        monkeypatch.setattr(retry, "full_jitter", lambda *_, **__: -0.2)
        calls = []

        def tick():
            calls.append(1)
            raise caused(OperationalError("x"), Cause(2006, "server has gone away"))

        with pytest.raises(OperationalError):
            worker.run(tick, threading.Event(), pause=lambda: 0.0, once=True)
        assert len(calls) == worker.TRIES_ONCE

    def test_a_bug_is_not_swallowed(self):
        def tick():
            raise DataError("x")

        with pytest.raises(DataError):
            worker.run(tick, threading.Event(), once=True)
