"""A session that falls asleep inside a transaction: the server ends it, and those who wait for its locks go on."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from config import checks
from config.database.clock import database_now
from config.database.isolation import PATIENCE, consistent_snapshot
from config.database.retry import Remedy, remedy_for
from config.database.tables import require_tables
from outbox.bookkeeping.models import FlowCounter

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no server that could end a session"),
]
LIMIT = 1  # seconds
UPDATE = "UPDATE outbox_flowcounter SET value = value + 1"


@pytest.fixture
def sessions() -> Iterator[list[Any]]:
    """Two, with a short limit."""
    options = dict(connection.settings_dict["OPTIONS"])
    if connection.vendor == "postgresql":
        options["options"] += f" -c idle_in_transaction_session_timeout={LIMIT}s"
    else:
        options["idle_transaction_seconds"] = LIMIT
    found: list[Any] = [connection.copy() for _ in range(2)]
    for session in found:
        session.settings_dict = {**session.settings_dict, "OPTIONS": options}
        session.ensure_connection()
    yield found
    for session in found:
        session.close()


@pytest.fixture(autouse=True)
def counter(transactional_db: None) -> FlowCounter:
    return FlowCounter.objects.create(flow="f", scope="s", name="n", value=0)


def limit_of(session: BaseDatabaseWrapper) -> int:
    """In seconds, what it has now."""
    with session.cursor() as cursor:
        if session.vendor == "postgresql":
            cursor.execute("SELECT setting::int / 1000 FROM pg_settings WHERE name LIKE 'idle_in_tr%'")
        else:
            cursor.execute("SELECT @@SESSION.wait_timeout")
        return int(cursor.fetchone()[0])


def asleep(session: BaseDatabaseWrapper) -> None:
    """It has changed a row, and says nothing any more."""
    session.set_autocommit(False)
    with session.cursor() as cursor:
        cursor.execute(UPDATE)


def test_whoever_waits_for_one_that_sleeps_gets_its_row(sessions: list[Any], counter: FlowCounter) -> None:
    sleeper, idler = sessions
    asleep(sleeper)
    with connection.cursor() as cursor:
        cursor.execute(UPDATE)  # waits for the row
    with pytest.raises(DatabaseError) as caught, sleeper.cursor() as cursor:
        cursor.execute(UPDATE)
    assert remedy_for(caught.value) is Remedy.WAIT, "whoever waits opens another session"
    counter.refresh_from_db()
    assert counter.value == 1
    with idler.cursor() as cursor:
        cursor.execute(UPDATE)  # outside a transaction nobody is in the way


def test_a_transaction_leaves_the_session_as_it_was(sessions: list[Any]) -> None:
    session, _ = sessions
    usual = limit_of(session)
    for _ in range(2):
        asleep(session)
        assert limit_of(session) == LIMIT
        session.rollback()
        session.set_autocommit(True)
        assert limit_of(session) == usual


def test_a_snapshot_has_time_to_ask_elsewhere() -> None:
    usual = limit_of(connection)
    with consistent_snapshot():
        assert limit_of(connection) == PATIENCE
    assert limit_of(connection) == usual


def test_no_limit_is_no_limit(settings: Any) -> None:
    settings.DATABASE_IDLE_TRANSACTION_SECONDS = 0
    with transaction.atomic():
        usual = limit_of(connection)
    with consistent_snapshot():
        assert limit_of(connection) == usual


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere our own backend sees to it")
def test_a_session_without_the_limit_is_named() -> None:
    assert not checks.sessions_are_safe(None, databases=["default"])
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 0")
    (found,) = checks.sessions_are_safe(None, databases=["default"])
    assert found.id == "spillway.W016"
    connection.close()


def test_who_looks_whether_tables_are_there_leaves_no_lost_session_behind() -> None:
    number, end = {
        "postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend(%s, 5000)"),
        "mysql": ("CONNECTION_ID()", "KILL %s"),
    }[connection.vendor]
    other: Any = connection.copy()
    with connection.cursor() as cursor, other.cursor() as killer:
        cursor.execute(f"SELECT {number}")
        killer.execute(end, cursor.fetchone())
    other.close()
    require_tables()
    database_now()
