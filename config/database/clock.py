"""The database's clock: the one clock that decides leases and due times, read once per tick."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from django.db import DEFAULT_DB_ALIAS, connections

NOW_SQL = {
    # now() would be the start of the transaction, which may be long ago.
    "postgresql": "SELECT clock_timestamp()",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}


def database_now(using: str = DEFAULT_DB_ALIAS) -> datetime:
    """The database server's time, in UTC; on SQLite server and program are one host."""
    connection = connections[using]
    sql = NOW_SQL.get(connection.vendor)
    if sql is None:
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute(sql)
        now: datetime = cursor.fetchone()[0]
    return now.astimezone(UTC) if now.tzinfo else now.replace(tzinfo=UTC)


def compared_clocks(using: str = DEFAULT_DB_ALIAS) -> tuple[datetime, float]:
    """The database server's time, and by how many seconds this machine's clock is ahead of it (negative: behind).

    What the time that it took to ask explains is no difference: under load that is a second.
    """
    asked = time.time()
    now = database_now(using)
    answered = time.time()
    ahead, doubt = (asked + answered) / 2 - now.timestamp(), (answered - asked) / 2
    return now, max(0.0, ahead - doubt) + min(0.0, ahead + doubt)
