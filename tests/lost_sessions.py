"""Ends sessions on the server, as a failover, an operator or a limit does; whoever has one learns it with the next statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

LISTED = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
    "AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}
OWN = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
ENDING = {"postgresql": "SELECT pg_terminate_backend(%s, 5000)", "mysql": "KILL %s"}


def sessions() -> list[int]:
    """All of the test database, as the server numbers them."""
    with closing(connection.copy()) as other, other.cursor() as cursor:
        cursor.execute(LISTED[connection.vendor])
        return [number for (number,) in cursor.fetchall()]


def end_sessions(numbers: list[int] | None = None) -> list[int]:
    """End these, or all; skips on SQLite, which has none."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no server that could end a session")
    ended = sessions() if numbers is None else numbers
    with closing(connection.copy()) as other, other.cursor() as cursor:
        for number in ended:
            _end(cursor, number)
    return ended


def end_own(session: BaseDatabaseWrapper) -> None:
    """End the session of this very connection."""
    if session.vendor == "sqlite":
        session.connection.close()
        return
    with session.cursor() as cursor:
        cursor.execute(OWN[session.vendor])
        end_sessions([cursor.fetchone()[0]])


def _end(cursor: Any, number: int) -> None:
    try:
        cursor.execute(ENDING[connection.vendor], [number])
    except Exception as error:
        if "Unknown thread" not in str(error):  # it has left by itself
            raise


@contextmanager
def lost_answer(*, committed: bool) -> Iterator[None]:
    """This thread's session ends at its next COMMIT, behind it or before it: whoever commits hears the same of both."""
    session = connections[DEFAULT_DB_ALIAS]
    commit = session.commit

    def cut() -> None:
        del session.commit
        if committed:
            commit()
        session.connection.close()
        raise OperationalError("the connection was closed, and nothing said what became of the COMMIT")

    session.commit = cut  # type: ignore[method-assign]
    try:
        yield
    finally:
        assert "commit" not in vars(session), "nothing was committed"


@contextmanager
def lost_statement(table: str, *, done: bool) -> Iterator[None]:
    """This thread's session ends at its next INSERT into a table, behind it or before it: a statement that is its own transaction."""
    session = connections[DEFAULT_DB_ALIAS]
    inserts = f"INSERT INTO {session.ops.quote_name(table)}"
    cuts = 0

    def cut(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        nonlocal cuts
        if cuts or not sql.startswith(inserts):
            return execute(sql, params, many, context)
        cuts = 1
        assert not session.in_atomic_block
        if done:
            execute(sql, params, many, context)
        end_own(session)
        raise OperationalError("the connection was closed, and nothing said what became of the statement")

    with session.execute_wrapper(cut):
        yield
    assert cuts, "nothing was inserted"
